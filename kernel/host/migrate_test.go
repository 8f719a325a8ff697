package host

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// TestMigration: a VIP comes to cookies and goes back to none while connections live. What
// was opened before each step goes on as it was, and handshakes are all taken, also those
// whose unstamped echo looks like a cookie by chance: with 512 slots and two thousand
// connections there are some.
func TestMigration(t *testing.T) {
	for _, timestamps := range []string{"1", "2"} {
		t.Run("timestamps"+timestamps, func(t *testing.T) {
			as := assignment(choices.L2, hosttest.Server4, hosttest.Server4, 10)
			with := as.VIPs[0].Settings
			without := with
			without.Scheme, without.Policy = choices.JET, choices.ByTheHash
			as.VIPs = as.VIPs[:1]
			as.VIPs[0].Settings = without
			r := newRig(t, timestamps, as)
			r.listen(hosttest.VIP4)
			service := netip.AddrPortFrom(hosttest.VIP4, 80)
			version := as.Version
			apply := func(settings choices.Settings, m *controller.Migration) {
				t.Helper()
				version++
				next := as.Clone()
				next.Version, next.VIPs[0].Settings, next.VIPs[0].Migration = version, settings, m
				if err := r.agent.Apply(next); err != nil {
					t.Fatal(err)
				}
			}
			live := func(stamped, plain uint64) {
				t.Helper()
				eventually(t, fmt.Sprintf("%d stamped connections and %d others", stamped, plain), func() bool {
					l, err := r.agent.Live()
					if err != nil {
						t.Fatal(err)
					}
					return l[1].Epochs[0] == stamped && l[1].NoCookie == plain
				})
			}
			before := must(r.Server.Counters())(t)
			var all []net.Conn
			open := func() {
				t.Helper()
				all = append(all, r.dial(hosttest.VIP4))
				for _, c := range all {
					r.echo(c, 20000)
				}
			}
			open()
			live(0, 1)
			toCookies := &controller.Migration{From: without, Stage: controller.StageCollect, Version: 2, Since: time.Unix(1, 0)}
			apply(with, toCookies)
			open()
			live(1, 1)
			both := *toCookies
			both.Stage = controller.StageBoth
			apply(with, &both)
			apply(with, nil)
			open()
			live(2, 1)
			if got := must(r.agent.Connections(service))(t); len(got) != 3 {
				t.Errorf("it has %v", got)
			}
			// A handshake that its client does not end is told from a connection.
			silent := netip.AddrPortFrom(netip.MustParseAddr("10.99.0.77"), 4711)
			r.sendFromClient(wire.TCP{Src: silent, Dst: service, Flags: wire.SYN, Seq: 1, Options: wire.SYNOptions(1400, 7)}.Packet())
			eventually(t, "three connections, and a half-open one", func() bool {
				got := must(r.agent.Connections(service))(t)
				half, there := got[Connection{silent, 80}]
				delete(got, Connection{silent, 80})
				return there && !bool(half) && slices.Equal(slices.Collect(maps.Values(got)), []Opened{true, true, true})
			})
			for _, stage := range []controller.Stage{controller.StagePlace, controller.StageCollect} {
				apply(without, &controller.Migration{From: with, Stage: stage, Version: 5, Since: time.Unix(1, 0)})
				open()
			}
			live(4, 1)
			apply(without, &controller.Migration{From: with, Stage: controller.StageEnding, Version: 5, Since: time.Unix(1, 0)})
			open()
			live(4, 2)
			for range 2000 {
				c := r.dial(hosttest.VIP4)
				r.echo(c, 10)
				c.Close()
			}
			live(4, 2)
			for _, i := range []int{1, 2, 3, 4} { // those with cookies
				all[i].Close()
			}
			all = []net.Conn{all[0], all[5]}
			live(0, 2)
			apply(without, nil)
			open()
			after := must(r.Server.Counters())(t)
			for _, name := range quiet {
				if d := after[name] - before[name]; d != 0 {
					t.Errorf("server: %s rose by %d", name, d)
				}
			}
		})
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
