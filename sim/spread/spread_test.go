package spread

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/soak"
)

func small() *Options {
	o := New()
	o.Packets, o.Hops, o.Span = 200_000, []int{2, 3, 8}, 4*time.Second
	return o
}

func run(t *testing.T, o *Options, c sim.Common) *sim.Result {
	t.Helper()
	if err := o.Check(); err != nil {
		t.Fatal(err)
	}
	r, err := o.Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func figure(t *testing.T, r *sim.Result, name string) sim.Figure {
	t.Helper()
	for _, f := range r.Figures {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no figure %s", name)
	return sim.Figure{}
}

// What must be holds in a small run, too, and the same seed gives the same bytes.
func TestRun(t *testing.T) {
	r := run(t, small(), sim.Common{Seed: 1, Seeds: 1})
	for _, c := range r.Checks {
		if strings.HasPrefix(c.What, "p of ") && !c.Holds {
			t.Errorf("%s: %v is under %v", c.What, c.Ours, c.Low)
		}
	}
	for _, s := range figure(t, r, "even-row").Series {
		for _, p := range s.Points {
			if polarised := p.Y.Mean > 10; polarised != (s.Name == nameCRC16) {
				t.Errorf("%s, %v next hops, four routers: χ² is %v × its degrees of freedom", s.Name, p.X, p.Y.Mean)
			}
		}
	}
	one, _ := json.Marshal(r)
	two, _ := json.Marshal(run(t, small(), sim.Common{Seed: 1, Seeds: 1, Workers: 1}))
	if !bytes.Equal(one, two) {
		t.Error("the same seed gives another result")
	}
}

// Shares of each second add up to a whole.
func TestShares(t *testing.T) {
	f := figure(t, run(t, small(), sim.Common{Seed: 3, Seeds: 1}), "shares-feistel")
	for at := range f.Series[0].Points {
		sum := 0.0
		for _, s := range f.Series {
			sum += s.Points[at].Y.Mean
		}
		if math.Abs(sum-100) > 1e-9 {
			t.Errorf("second %d: shares sum up to %v %%", at, sum)
		}
	}
}

// CRC-16/ARC of "123456789" is 0xbb3d (the check value of its catalogue entry).
func TestCRC16(t *testing.T) {
	crc := uint16(0)
	for _, b := range []byte("123456789") {
		crc = crc>>8 ^ crcTable[byte(crc)^b]
	}
	if crc != 0xbb3d {
		t.Errorf("%04x", crc)
	}
}

// The skew of the paper's last digit, calculated by hand for radix 3: 2^32 is
// 3^19 × 3.695, so that digit 0 has 3^19 × 1.695 of the values.
func TestCommonest(t *testing.T) {
	for _, c := range []struct {
		radix uint64
		paper float64
	}{{2, .5}, {3, .459}, {16, 1.0 / 16}} {
		if got := commonest(c.radix); math.Abs(got-c.paper) > .0005 {
			t.Errorf("radix %d: %v, not %v", c.radix, got, c.paper)
		}
	}
	for radix := 2; radix <= 64; radix++ {
		got, err := commonestRead(radix, 5)
		if err != nil || got*float64(radix) < 1 || got*float64(radix) > 1.0005 {
			t.Errorf("radix %d, as routers read it: %v, %v", radix, got, err)
		}
	}
	if got := modulo(3, 2); math.Abs(got-2.0/3) > 1e-15 {
		t.Errorf("digits 0, 1, 2 modulo 2: %v", got)
	}
}

// Where there are too few flows to tell, nothing is said to be even.
func TestEvennessOfNothing(t *testing.T) {
	f := &found{o: &Options{Schemes: []string{nameMD5}}, uniform: [][]*uniform{{{one: map[int][]uint32{4: {1, 0, 2, 1}, 2: {2, 2}}}}}}
	c := f.evenness(0, "one router", func(u *uniform) map[int][]uint32 { return u.one })
	if c.Holds || !math.IsNaN(c.Ours) || !strings.Contains(c.Why, "10 at least are needed") {
		t.Errorf("%+v", c)
	}
	f.uniform[0][0].one[2] = []uint32{50, 51}
	if c := f.evenness(0, "one router", func(u *uniform) map[int][]uint32 { return u.one }); !c.Holds {
		t.Errorf("%+v", c)
	}
}

// χ² of counts that are as they should be, and of ones that are not.
func TestChi2(t *testing.T) {
	if reduced, p := chi2([]uint32{10, 10, 10, 10}); reduced != 0 || p != 1 {
		t.Errorf("even: %v, %v", reduced, p)
	}
	// χ² = 4, one degree of freedom: 0.0455 (any table of the distribution).
	if reduced, p := chi2([]uint32{60, 40}); reduced != 4 || math.Abs(p-.0455) > .0001 {
		t.Errorf("60 and 40: %v, %v", reduced, p)
	}
	if _, p := chi2([]uint32{4, 4}); !math.IsNaN(p) {
		t.Error("a test of too few flows")
	}
}

func TestFurthest(t *testing.T) {
	if got := furthest([]uint32{30, 20}); math.Abs(got-10) > 1e-9 {
		t.Errorf("60 %% of two is off by %v", got)
	}
	if got := furthest([]uint32{0, 0}); !math.IsNaN(got) {
		t.Errorf("nothing is off by %v", got)
	}
}

// A trace has about the packets asked for, each within the span.
func TestTrace(t *testing.T) {
	o := small()
	packets := 0
	for b := range o.trace(soak.Seed(t)) {
		b.each(o.span(), func(at sim.Time) {
			packets++
			if at < 0 || at >= o.span() {
				t.Fatalf("a packet at %d", at)
			}
		})
	}
	if packets < o.Packets*95/100 || packets > o.Packets*105/100 {
		t.Errorf("%d packets, not about %d", packets, o.Packets)
	}
}

// The contenders are what they say: hops of CFLB are those that a router takes.
func TestCFLBIsARouter(t *testing.T) {
	c, err := newCFLB("feistel", 16, 7)
	if err != nil {
		t.Fatal(err)
	}
	f := pathsel.Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 6, SrcPort: 5, DstPort: 80}
	for port := range uint16(1000) {
		f.SrcPort = 1024 + port
		c.read(&f)
		for router := range routers {
			want, _ := c.routers[router].Choose(f, uint8(firstTTL-router), c.groups[5])
			if got := c.hop(router, 5); got != want {
				t.Fatalf("port %d, router %d: %d, not %d", f.SrcPort, router, got, want)
			}
		}
	}
}

func TestFlowFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flows.csv")
	var b strings.Builder
	b.WriteString("start,duration,source,source_port,destination,destination_port,protocol,bytes\n")
	for i := range 200 {
		line := []string{"0.5", "2", netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String(), "4000", "203.0.113.80", "443", "tcp", "7500"}
		b.WriteString(strings.Join(line, ",") + "\n")
	}
	b.WriteString("1,1,192.0.2.0,4000,203.0.113.80,443,tcp,10\n") // comes again
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	o := small()
	if err := o.Flows.Set(file); err != nil {
		t.Fatal(err)
	}
	r := run(t, o, sim.Common{Seed: 1, Seeds: 1})
	for i, want := range []int64{200, 201, 2001} {
		if got := r.Samples[i]; got.Count != want {
			t.Errorf("%s: %d, not %d", got.What, got.Count, want)
		}
	}
	// 200 flows are enough for a router of 8 hops, not for four of three.
	if n := len(figure(t, r, "even-one").Series[0].Points); n != 3 {
		t.Errorf("%d numbers of hops of one router are tested", n)
	}
	if n := len(figure(t, r, "even-row").Series[0].Points); n != 1 {
		t.Errorf("%d numbers of hops of four routers are tested", n)
	}
}

func TestTooFewFlows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flows.csv")
	flows := "start,duration,source,source_port,destination,destination_port\n0,1,192.0.2.1,1,192.0.2.2,2\n"
	if err := os.WriteFile(file, []byte(flows), 0o600); err != nil {
		t.Fatal(err)
	}
	o := small()
	if err := o.Flows.Set(file); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Run(context.Background(), sim.Common{Seed: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), "record for longer") {
		t.Errorf("one flow: %v", err)
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Packets = 1 }, "--packets 1: must be 1000 to"},
		{func(o *Options) { o.Mean = 0 }, "--mean 0"},
		{func(o *Options) { o.Skew = math.NaN() }, "--skew NaN"},
		{func(o *Options) { o.Span = 0 }, "--span 0s"},
		{func(o *Options) { o.Hops = nil }, "--hops: none"},
		{func(o *Options) { o.Hops = []int{17} }, "--hops 17: must be 2 to 16"},
		{func(o *Options) { o.Hops = []int{4, 4} }, "--hops 4: is given twice"},
		{func(o *Options) { o.Radix = 65 }, "--radix 65"},
		{func(o *Options) { o.Radix = 3 }, "--hops 4: with --radix 3 every digit"},
		{func(o *Options) { o.Schemes = []string{"xor"} }, `--schemes "xor": must be one of`},
		{func(o *Options) { o.Schemes = []string{"md5", "md5"} }, "is given twice"},
	} {
		o := New()
		c.change(o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error is %v, not %q", err, c.want)
		}
	}
}
