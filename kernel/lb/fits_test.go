package lb

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/tables"
)

// TestMeasured: a plan that is only measured takes the room of the real one.
func TestMeasured(t *testing.T) {
	c := capacity{lines: 1 << 15, tableEntries: 1 << 24, vipIDs: tables.Lines}
	rapid.Check(t, func(t *rapid.T) {
		a := drawAssignment(t)
		plan := func(hashes hashTables) (*plan, error) {
			return makePlan(a, nil, moment{now: setsNow}, nil, c, 1, hashes, nil, rand.New(rand.NewPCG(1, 2)))
		}
		made, err := plan(hashTables{})
		measured, measuredErr := plan(nil)
		if (err == nil) != (measuredErr == nil) {
			t.Fatalf("made: %v, measured: %v", err, measuredErr)
		}
		if err != nil {
			return
		}
		if int(made.flat) != len(made.tables) || measured.flat != made.flat || measured.need != made.need || measured.size != made.size || measured.tables != nil {
			t.Fatalf("made %d (%d entries) %d %d, measured %d %d %d", made.flat, len(made.tables), made.need, made.size, measured.flat, measured.need, measured.size)
		}
		for i := range made.entries {
			x, y := made.entries[i], measured.entries[i]
			y.HashForm, y.AnchorHeld, y.AnchorTrack = x.HashForm, x.AnchorHeld, x.AnchorTrack
			if x != y {
				t.Fatalf("made %+v, measured %+v", x, y)
			}
		}
	})
}

// site is a deployment of so many VIPs with so many servers each.
func site(t testing.TB, vips, servers int, settings string) *controller.Assignment {
	t.Helper()
	var b strings.Builder
	b.WriteString("secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\nbalancers: [{name: lb1, interfaces: [eth0], source: 10.9.0.1}]\nservers:\n")
	pool := ""
	for i := range servers {
		fmt.Fprintf(&b, "- {name: s%d, address: 10.0.%d.%d}\n", i, i/250, i%250+1)
		pool += fmt.Sprintf("s%d, ", i)
	}
	b.WriteString("vips:\n")
	for i := range vips {
		fmt.Fprintf(&b, "- {address: 192.0.2.%d, port: %d, %s servers: [%s]}\n", i/500+1, i%500+1, settings, pool)
	}
	cfg, err := config.Parse("fairlead.yaml", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	a, err := controller.First(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var limitLine = regexp.MustCompile(`(server_lines|table_entries): ([0-9]+) \(`)

// named is l with what Fits names of a; it fits then, and names something only
// where it did not before.
func named(t testing.TB, a *controller.Assignment, l config.Limits) config.Limits {
	t.Helper()
	err := Fits(a, l)
	if err == nil {
		return l
	}
	found := limitLine.FindAllStringSubmatch(err.Error(), -1)
	if len(found) == 0 {
		t.Fatalf("no limit is named: %v", err)
	}
	for _, f := range found {
		n, _ := strconv.Atoi(f[2]) // digits alone
		if f[1] == "server_lines" {
			l.ServerLines = n
		} else {
			l.TableEntries = n
		}
	}
	if again := Fits(a, l); again != nil {
		t.Fatalf("%v\nand then: %v", err, again)
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestThousandVIPs: 1,000 VIPs with 100 servers each, whatever their scheme: the
// defaults are enough, or what is named is.
func TestThousandVIPs(t *testing.T) {
	all := []string{"", "scheme: beamer,"}
	if soak.On() {
		all = append(all, "scheme: jet,", "scheme: jet, hash: anchor,", "scheme: stateless, hash: maglev,", "scheme: full-ct,")
	}
	for _, settings := range all {
		l := named(t, site(t, 1000, 100, settings), config.DefaultLimits())
		if l.ServerLines < 128_000 || l.ServerLines > 140_000 || l.TableEntries > 140_000_000 {
			t.Errorf("%s %+v", settings, l)
		}
	}
}

// TestNamedLimits: the kernel takes what is named, and one VIP of it in force.
func TestNamedLimits(t *testing.T) {
	vips := 16
	if soak.On() {
		vips = 1000 // 1 GiB of tables
	}
	w := newWired(t)
	o := w.options()
	a := site(t, vips, 100, "")
	o.Limits = named(t, a, o.Limits)
	l := w.open(o)
	if _, err := l.Apply(a, nil); err != nil {
		t.Error(err)
	}
	if line, ok := l.Line(a.VIPs[vips-1].ID, 99); !ok || int(line) >= o.Limits.ServerLines {
		t.Errorf("the last server's line is %d, %t", line, ok)
	}
}

// Where no limit is enough, that is said.
func TestNoLimitIsEnough(t *testing.T) {
	a := site(t, 40, 1, "protocol: udp,")
	for i := range a.VIPs {
		a.VIPs[i].CookieBits, a.VIPs[i].Slots[0].Number = 0, 8000
	}
	if err := Fits(a, config.DefaultLimits()); err == nil ||
		!strings.Contains(err.Error(), "limits.server_lines 262144 is too low") || !strings.Contains(err.Error(), "no limit is higher") {
		t.Error(err)
	}
}
