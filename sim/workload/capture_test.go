package workload

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/wire"
)

var (
	client = netip.MustParseAddrPort("192.0.2.7:51234")
	server = netip.MustParseAddrPort("203.0.113.80:443")
)

func segment(ms int, from, to netip.AddrPort, flags uint8) wire.Captured {
	frame := wire.Link{}.Frame(wire.TCP{Src: from, Dst: to, Flags: flags}.Packet())
	return wire.Captured{Time: time.UnixMilli(1700000000000 + int64(ms)), Frame: frame}
}

func pcap(t *testing.T, frames ...wire.Captured) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := wire.WritePcap(&b, frames); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCapture(t *testing.T) {
	other := netip.MustParseAddrPort("192.0.2.8:51234")
	file := pcap(t,
		segment(5, server, other, wire.ACK), // began before the capture
		segment(10, client, server, wire.SYN),
		segment(11, server, client, wire.SYN|wire.ACK),
		segment(40, server, client, wire.FIN|wire.ACK),
		segment(50, client, server, wire.ACK),
		segment(60, client, server, wire.SYN), // again
		segment(61, client, server, wire.SYN), // lost
		segment(90, other, server, wire.ACK),
		segment(30, client, server, wire.ACK), // out of order
	)
	name := filepath.Join(t.TempDir(), "x.pcap")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRecord(name)
	if err != nil {
		t.Fatal(err)
	}
	ms := func(f Flow) [2]sim.Time { return [2]sim.Time{f.Start / sim.Millisecond, f.Duration / sim.Millisecond} }
	want := [][2]sim.Time{{0, 85}, {5, 40}, {25, 31}}
	for i, f := range r.Flows {
		if i >= len(want) || ms(f) != want[i] || f.Destination != server {
			t.Errorf("flow %d: %+v", i, f)
		}
	}
	if r.Active() < 1.8 || r.Active() > 1.9 { // (85+40+31)/85
		t.Errorf("active %v", r.Active())
	}
}

func TestBadCaptures(t *testing.T) {
	whole := pcap(t, segment(0, client, server, wire.SYN), segment(1, client, server, wire.ACK))
	for _, c := range []struct {
		file []byte
		want string
	}{
		{whole[:len(whole)-3], "packet 2: cut (at byte"},
		{whole[:len(whole)-60], "packet 2: cut in its header (at byte"},
		{pcap(t), "no whole TCP or UDP packet"},
		{[]byte("\x0a\x0d\x0d\x0a0123456789012345678901234567890"), "pcapng; convert it"},
	} {
		_, err := ReadCapture(bytes.NewReader(c.file), "x")
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}
