package tables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/soak"
)

// TestMeasured: a plan that is only measured takes the room of the real one.
func TestMeasured(t *testing.T) {
	c := Capacity{Lines: 1 << 15, TableEntries: 1 << 24, VIPIDs: bpf.VIPLines}
	rapid.Check(t, func(t *rapid.T) {
		a := drawAssignment(t)
		plan := func(hashes Hashes) (*Plan, error) {
			return Balancer(a, View{Moment: Moment{Now: setsNow}, Half: 1, Capacity: c, Hashes: hashes, Random: rand.New(rand.NewPCG(1, 2))})
		}
		made, err := plan(Hashes{})
		measured, measuredErr := plan(nil)
		if (err == nil) != (measuredErr == nil) {
			t.Fatalf("made: %v, measured: %v", err, measuredErr)
		}
		if err != nil {
			return
		}
		if int(made.flat) != len(made.Tables) || measured.flat != made.flat || measured.Need != made.Need || measured.Size != made.Size || measured.Tables != nil {
			t.Fatalf("made %d (%d entries) %d %d, measured %d %d %d", made.flat, len(made.Tables), made.Need, made.Size, measured.flat, measured.Need, measured.Size)
		}
		for i := range made.Entries {
			x, y := made.Entries[i], measured.Entries[i]
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

// What carries no cookie is bounded by what a balancer can number, not by the
// width that cookies would have.
func TestFitsManyServers(t *testing.T) {
	for _, settings := range []string{"scheme: jet,", "scheme: full-ct,", "protocol: udp, policy: hash,"} {
		if err := Fits(site(t, 1, 3000, settings), config.DefaultLimits()); err != nil {
			t.Errorf("%s %v", settings, err)
		}
	}
}

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

// What the largest tables need of the maps, and who can be named: Fits says it
// before any balancer is told.
func TestBeamerFits(t *testing.T) {
	limits := config.DefaultLimits()
	limits.ServerLines = 1 << 16
	const large = 6_400_000
	fits := func(entries, slots int, v func(*controller.VIP)) error {
		l := limits
		l.TableEntries = entries
		a := beamerAssignment(buckets.New(large, weights(1)), 11)
		a.VIPs[0].Slots[0].Number = 0
		for n := 1; n < slots; n++ {
			a.VIPs[0].Slots = append(a.VIPs[0].Slots, controller.Slot{Number: uint16(n), Server: fmt.Sprint(n), Address: netip.AddrFrom4([4]byte{10, 77, 0, 12}), Weight: 1, State: controller.Active})
		}
		if v != nil {
			v(&a.VIPs[0])
		}
		return Fits(a, l)
	}
	need := 2 * (large/4 + 2*large + 1)
	if err := fits(need, 1, nil); err != nil {
		t.Error(err)
	}
	if err := fits(need, bpf.BucketMoved, nil); err != nil {
		t.Errorf("%d slots: %v", bpf.BucketMoved, err)
	}
	for _, c := range []struct {
		entries int
		change  func(*controller.VIP)
		want    string
	}{
		{need - 2, nil, fmt.Sprintf("limits.table_entries %d: the tables of policies, hashes and buckets need %d, half of them for the idle copy; write under limits table_entries: ", need-2, need)},
	} {
		if err := fits(c.entries, 1, c.change); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want one with %q", err, c.want)
		}
	}
}
