package tracking

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
	"github.com/fairlead/fairlead/wire"
)

// docs/simulation-jet.md, "Trace": the flows' keys.
func TestTraceIsAsDefined(t *testing.T) {
	const flows, packets, seed = 1000, 5000, 7
	tr, err := NewTrace(t.Context(), TraceOptions{Flows: flows, Packets: packets, Zipf: 1, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]int, flows)
	for i := range tr.Packets {
		p := tr.Packets[i]
		seen[p.Flow]++
		if p != tr.Flows[p.Flow] {
			t.Fatalf("packet %d is %+v, its flow %+v", i, p, tr.Flows[p.Flow])
		}
	}
	if len(tr.Packets) != packets || slices.Min(seen) < 1 {
		t.Fatalf("%d packets, a flow has %d; want %d and 1 at least", len(tr.Packets), slices.Min(seen), packets)
	}
	for f, p := range tr.Flows {
		var b [8]byte
		binary.LittleEndian.PutUint32(b[:], p.Source)
		binary.LittleEndian.PutUint32(b[4:], p.Ports)
		source, destination := binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
		address := binary.BigEndian.Uint32(b[:])
		if want := uint32(sim.SplitMix(seed<<32 + 2*uint64(f))); address != want {
			t.Fatalf("flow %d: source %x, want %x", f, address, want)
		}
		if want := 1024 + sim.SplitMix(seed<<32+2*uint64(f)+1)%64512; uint64(source) != want || destination != 80 {
			t.Fatalf("flow %d: ports %d and %d, want %d and 80", f, source, destination, want)
		}
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), source)
		if want := hash.Tuple(tr.keys[0], addr, 80); tr.hash(&p) != want {
			t.Fatalf("flow %d: hash %x, the program's is %x", f, tr.hash(&p), want)
		}
	}
	// The finaliser of SplitMix64 of 1 and of a large number, by hand.
	if sim.SplitMix(0) != 0 || sim.SplitMix(1) != 0x5692161d100b05e5 {
		t.Fatalf("sim.SplitMix(1) = %x", sim.SplitMix(1))
	}
}

func TestTraceRepeats(t *testing.T) {
	o := TraceOptions{Flows: 500, Packets: 2000, Zipf: 0.8, Seed: 3}
	a, _ := NewTrace(t.Context(), o)
	b, _ := NewTrace(t.Context(), o)
	if !slices.Equal(a.Packets, b.Packets) {
		t.Fatal("two traces of one seed differ")
	}
	o.Seed = 4
	c, _ := NewTrace(t.Context(), o)
	if slices.Equal(a.Packets, c.Packets) {
		t.Fatal("traces of two seeds are alike")
	}
}

func TestZipf(t *testing.T) {
	const n, draws = 1000, 400_000
	for _, s := range []float64{0, 0.6, 1, 1.4} {
		table := workload.NewZipf(n, s)
		r := sim.Stream(1, "test")
		counts := make([]float64, n)
		for range draws {
			counts[table.Draw(r)]++
		}
		sum := 0.0
		for i := range n {
			sum += math.Pow(float64(i+1), -s)
		}
		// Ranks one by one and the tail together, within five deviations.
		tail, wantTail := 0.0, 0.0
		for i := range n {
			want := math.Pow(float64(i+1), -s) / sum * draws
			if i >= 10 {
				tail, wantTail = tail+counts[i], wantTail+want
			} else if math.Abs(counts[i]-want) > 5*math.Sqrt(want) {
				t.Errorf("zipf %g: rank %d drawn %.0f times, want %.0f", s, i, counts[i], want)
			}
		}
		if math.Abs(tail-wantTail) > 5*math.Sqrt(wantTail) {
			t.Errorf("zipf %g: ranks from 10 on drawn %.0f times, want %.0f", s, tail, wantTail)
		}
	}
}

func captured(frames ...[]byte) []wire.Captured {
	var out []wire.Captured
	for _, f := range frames {
		out = append(out, wire.Captured{Frame: f})
	}
	return out
}

func TestReadTrace(t *testing.T) {
	src4, dst4 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.7")
	src6, dst6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::80")
	tcp := wire.TCP{Src: netip.AddrPortFrom(src4, 4000), Dst: netip.AddrPortFrom(dst4, 80)}.Frame()
	udp := wire.UDP{Src: netip.AddrPortFrom(src6, 5000), Dst: netip.AddrPortFrom(dst6, 443)}.Frame()
	arp := wire.Link{EtherType: 0x0806}.Frame(make([]byte, 28))
	frames := captured(tcp, udp, arp, tcp)
	frames[3].Frame, frames[3].Length = tcp[:54], len(tcp)+900 // cut by the capture
	var file bytes.Buffer
	if err := wire.WritePcap(&file, frames); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Clone(file.Bytes())
	tr, err := ReadTrace(&file, "x.pcap")
	if err != nil {
		t.Fatal(err)
	}
	tr.rekey(1)
	if len(tr.Packets) != 3 || len(tr.Flows) != 2 || len(tr.VIPs) != 2 || tr.Skipped != 1 {
		t.Fatalf("%d packets, %d flows, %d VIPs, %d skipped; want 3, 2, 2, 1", len(tr.Packets), len(tr.Flows), len(tr.VIPs), tr.Skipped)
	}
	for i, source := range []netip.AddrPort{netip.AddrPortFrom(src4, 4000), netip.AddrPortFrom(src6, 5000)} {
		want := hash.Tuple(tr.keys[i], source, tr.VIPs[i].Address.Port())
		if got := tr.hash(&tr.Flows[i]); got != want {
			t.Errorf("flow %v: hash %x, the program's is %x", source, got, want)
		}
	}
	_, err = ReadTrace(bytes.NewReader(whole[:len(whole)-10]), "x.pcap")
	if err == nil || !strings.Contains(err.Error(), "packet 4") || !strings.Contains(err.Error(), "byte") {
		t.Errorf("a file that is cut: %v, want its packet 4 and the byte", err)
	}
	var none bytes.Buffer
	if err := wire.WritePcap(&none, captured(arp)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadTrace(&none, "x.pcap"); err == nil || !strings.Contains(err.Error(), "tcpdump") {
		t.Errorf("a capture without packets: %v, want the remedy", err)
	}
}

// What takes a second and more is heard to be of no use any longer.
func TestTraceInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := NewTrace(ctx, TraceOptions{Flows: 1, Packets: 1, Seed: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
