package lab

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/attack"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// TestFloodFrames: every frame is a whole packet from the sources' prefixes
// to a target; SYNs and ACKs, with timestamps and without, are as many; and a
// seed repeats them.
func TestFloodFrames(t *testing.T) {
	seed := soak.Seed(t)
	p := FloodPlan{Targets: []netip.AddrPort{netip.MustParseAddrPort("10.77.7.1:80"), netip.MustParseAddrPort("[fd77:7::2]:80")}}
	link := wire.Link{Src: wire.MAC{2, 0, 0, 0, 0, 1}, Dst: wire.MAC{2, 0, 0, 0, 0, 2}}
	p.Seed = seed
	next, err := p.frames(link)
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.frames(link)
	if err != nil {
		t.Fatal(err)
	}
	var syns, stamped, six int
	const n = 4000
	sources := map[netip.Addr]bool{}
	for range n {
		frame, syn := next()
		if same, _ := again(); !bytes.Equal(frame, same) {
			t.Fatal("the seed's frames differ")
		}
		got := wire.Parse(frame)
		if got.Err != nil || len(got.ChecksumErrors()) > 0 {
			t.Fatalf("%v %v", got.Err, got.ChecksumErrors())
		}
		if from := got.Src; !attack.Sources4.Contains(from) && !attack.Sources6.Contains(from) || got.SrcPort < 1024 {
			t.Fatalf("source %v", got.Source())
		}
		if got.Is(wire.SYN) != syn || got.Is(wire.ACK) == syn {
			t.Fatalf("flags %#x, syn %v", got.Flags, syn)
		}
		sources[got.Src] = true
		if syn {
			syns++
		}
		if _, ok, _ := wire.FindTimestamp(got.Options); ok {
			stamped++
		}
		if got.Dst.Is6() {
			six++
		}
	}
	for what, count := range map[string]int{"SYNs": syns, "with timestamps": stamped, "to the second target": six} {
		if count < n*45/100 || count > n*55/100 {
			t.Errorf("%d of %d %s", count, n, what)
		}
	}
	if len(sources) < n*95/100 {
		t.Errorf("%d sources in %d frames", len(sources), n)
	}
}

// TestFloodPlanRefused: a flood is bounded in rate and time.
func TestFloodPlanRefused(t *testing.T) {
	good := FloodPlan{Targets: []netip.AddrPort{netip.MustParseAddrPort("10.77.7.1:80")}, Rate: 1, Seconds: 1, Gateway: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*FloodPlan){
		"no targets": func(p *FloodPlan) { p.Targets = nil },
		"rate 0":     func(p *FloodPlan) { p.Rate = 0 },
		"rate 20000": func(p *FloodPlan) { p.Rate = MaxFloodRate * 10 },
		"0 seconds":  func(p *FloodPlan) { p.Seconds = 0 },
		"seconds":    func(p *FloodPlan) { p.Seconds = 2 * MaxFloodSeconds },
		"gateway":    func(p *FloodPlan) { p.Gateway = nil },
	} {
		bad := good
		change(&bad)
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestSynflood is a small flood with one change of each kind.
func TestSynflood(t *testing.T) {
	t.Parallel()
	result := small(t, RunOptions{
		Scenario: "synflood", Seed: 5, Schemes: []string{"jet", "full-ct"}, Hashes: []string{"table-hrw"}, IPv4: true, Rate: 5000,
		Scale: Scale{Connections: 150, Slot: 700 * time.Millisecond, Pause: 2 * time.Second,
			Steps: []string{"add two", "fail", "recover", "drain", "reshuffle"}},
	})
	if len(result.Runs) != 2 || len(result.Floods) != 2 || len(result.Tables) != 4 {
		t.Fatalf("%+v", result)
	}
	for _, u := range result.Tables {
		if u.Limit < 900 || u.used()*2 < u.Limit || u.FlowBytes < uint64(u.Limit*9) || u.MapBytes < u.FlowBytes {
			t.Errorf("%+v", u)
		}
	}
	t.Logf("%+v %+v", result.Runs, result.Floods)
}
