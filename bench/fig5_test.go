package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/soak"
)

// Microsoft's verification suite, of IPv4 with ports; CRC-32C's check value comes with
// Go's own tests.
func TestToeplitz(t *testing.T) {
	for _, c := range []struct {
		dst, src string
		want     uint32
	}{
		{"161.142.100.80:1766", "66.9.149.187:2794", 0x51ccc178},
		{"65.69.140.83:4739", "199.92.111.2:14230", 0xc626b0ea},
		{"12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b394a},
		{"209.142.163.6:2217", "38.27.205.30:48228", 0xafc7327f},
		{"202.188.127.2:1303", "153.39.163.191:44251", 0x10e828a2},
	} {
		var in tuple
		src, dst := netip.MustParseAddrPort(c.src), netip.MustParseAddrPort(c.dst)
		a, b := src.Addr().As4(), dst.Addr().As4()
		copy(in[:], a[:])
		copy(in[4:], b[:])
		binary.BigEndian.PutUint16(in[8:], src.Port())
		binary.BigEndian.PutUint16(in[10:], dst.Port())
		if got := toeplitz(in); got != c.want {
			t.Errorf("%s to %s: %#x, not %#x", c.src, c.dst, got, c.want)
		}
	}
}

// The tables give what the hashes do, and the programs go by them.
func TestLinear(t *testing.T) {
	random := soak.Rand(t)
	r := newTrackedRig(t, 96, "fig5_by_toeplitz", "fig5_by_crc", "fig5_by_rss")
	r.draw(random.Uint32N)
	for program, of := range map[string]func(tuple) uint32{"fig5_by_toeplitz": toeplitz, "fig5_by_crc": crc32c, "fig5_by_rss": nil} {
		packets := make([]fig5ScriptPacket, 256)
		for i := range packets {
			packets[i] = fig5ScriptPacket{Saddr: random.Uint32(), Ports: random.Uint32()&0xffff | 80<<24, Rss: random.Uint32(), Kind: random.Uint32N(3)}
		}
		for i, got := range r.send(program, packets) {
			p := packets[i]
			h := p.Rss
			if of != nil {
				var in tuple
				binary.LittleEndian.PutUint32(in[:], p.Saddr)
				binary.LittleEndian.PutUint32(in[4:], r.daddr)
				binary.LittleEndian.PutUint32(in[8:], p.Ports)
				h = of(in)
				table := linear(of)
				if table.of(&in) != h {
					t.Fatalf("%s: the table says %#x, not %#x", program, table.of(&in), h)
				}
			}
			if want := r.rows[h%floorRows]; got != want {
				t.Fatalf("%s, packet %d: went to %d, not %d", program, i, got, want)
			}
		}
	}
}

// The stream has the shares that the rate says, and no connection speaks before its SYN
// or after its FIN.
func TestStream(t *testing.T) {
	const live, n = 5000, 1 << 18
	s := newStream(live, 8192, vips["rr"].addr)
	open := map[[2]uint32]bool{}
	see := func(packets []fig5ScriptPacket) error {
		for _, p := range packets {
			key := [2]uint32{p.Saddr, p.Ports}
			if open[key] == (p.Kind == kindSYN) {
				t.Fatalf("a packet of kind %d of a connection that is open: %v", p.Kind, open[key])
			}
			if open[key] = true; p.Kind == kindFIN {
				delete(open, key)
			}
		}
		return nil
	}
	if err := s.establish(4096, see); err != nil || len(open) != live {
		t.Fatalf("%d are open: %v", len(open), err)
	}
	if err := s.age(4096, see); err != nil || len(open) != live {
		t.Fatalf("%d are open: %v", len(open), err)
	}
	began := s.now
	packets := make([]fig5ScriptPacket, n)
	if opened := s.fill(packets, FullRate, 8*FullRate); opened < n/8-1 || opened > n/8 {
		t.Errorf("%d of %d packets are SYNs, not an eighth", opened, n)
	}
	if _ = see(packets); len(open) < live-1 || len(open) > live {
		t.Errorf("%d are open", len(open))
	}
	if took := s.now - began; took != n*1000/(8*FullRate) {
		t.Errorf("%d packets took %d ms", n, took)
	}
}

// The whole, small: every way checks by itself that its packets went its way.
func TestFig5(t *testing.T) {
	o := Fig5Defaults()
	o.Live, o.Packets, o.Rates = 1<<14, 1<<13, []int{640_000}
	r, err := Fig5(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Points) != len(fig5Ways)*len(o.Rates) || r.CPU == "" || r.MemoryBytes == 0 || r.PacketRate != 5_120_000 {
		t.Errorf("%+v", r)
	}
	for _, p := range r.Points {
		if p.Name == "floor" && p.Ratio != 1 || p.NS < p.Min || p.NS > p.Max || p.Paper != fig5Paper[p.Name][p.Rate] {
			t.Errorf("%+v", p)
		}
	}
	if len(r.Orders) == 0 {
		t.Error("no order of the paper was looked at")
	}
	// Interrupted: the rounds that were whole, or an error.
	for _, c := range []struct {
		at   string
		runs int
	}{{"opening connections", 0}, {"640000 new connections a second: round 3 of 10", len(fig5Ways)}} {
		stopped, cancel := context.WithCancel(context.Background())
		o.Progress = func(what string) {
			if what == c.at {
				cancel()
			}
		}
		r, err := Fig5(stopped, o)
		if !errors.Is(err, ErrInterrupted) || (r != nil) != (c.runs > 0) || r != nil && len(r.Points) != c.runs {
			t.Errorf("interrupted at %q: %+v, %v", c.at, r, err)
		}
	}
}

func TestFig5Refused(t *testing.T) {
	for field, change := range map[string]func(*Fig5Options){
		"--rates 0":       func(o *Fig5Options) { o.Rates = []int{0} },
		"--rates 1280001": func(o *Fig5Options) { o.Rates = []int{5000, 1280001} },
		"--rates":         func(o *Fig5Options) { o.Rates = nil },
		"--live 1":        func(o *Fig5Options) { o.Live = 1 },
		"--packets 3":     func(o *Fig5Options) { o.PerConnection = 3 },
		"--rounds 9":      func(o *Fig5Options) { o.Rounds = 9 },
	} {
		o := Fig5Defaults()
		change(&o)
		if _, err := Fig5(context.Background(), o); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// The paper's own figures have all its orders; upside down none.
func TestCompare(t *testing.T) {
	var same, turned []Fig5Point
	for name, by := range fig5Paper {
		for rate, cycles := range by {
			same = append(same, Fig5Point{Name: name, Rate: rate, NS: cycles, Paper: cycles})
			turned = append(turned, Fig5Point{Name: name, Rate: rate, NS: 1000 / cycles, Paper: cycles})
		}
	}
	for want, points := range map[string][]Fig5Point{"holds": same, "differs": turned} {
		all := compare(points)
		if len(all) < 40 || slices.ContainsFunc(all, func(c Fig5Compare) bool { return c.Holds != want }) {
			t.Errorf("not all of %d %s: %+v", len(all), want, all)
		}
	}
	for pair := range fig5Reasons {
		for _, name := range pair {
			if fig5Paper[name] == nil {
				t.Errorf("a reason for %s, which the paper has not", name)
			}
		}
	}
}
