package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

const twoOfEach = `
balancers: [{name: lb1, interfaces: [eth0]}, {name: lb2, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}]
vips: [{name: web, address: 192.0.2.1, port: 80, policy: wrr, servers: [s1, s2]}]
`

const three = `
balancers: [{name: lb1, interfaces: [eth0]}, {name: lb2, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}, {name: s3, address: 10.0.1.3}]
vips: [{name: web, address: 192.0.2.1, port: 80, policy: wrr, servers: [s1, s2, s3]}]
`

func op(kind controller.Kind, server string) controller.Op {
	o := controller.Op{Kind: kind, VIP: "web", Server: server}
	if kind == controller.Add {
		o.Address = netip.AddrFrom4([4]byte{10, 0, 1, 3})
	}
	return o
}

// TestOrder: everybody has a version before anybody has the next. (Agents before
// balancers: TestTurns.)
func TestOrder(t *testing.T) {
	f := newFleet(t, twoOfEach)
	f.load(t, three)
	f.start(t, "s3", f.cfg.Servers[2].API)
	f.get("s3").cur = f.get("s1").cur
	ch, err := f.coordinator().Apply(context.Background(), f.text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if ch.From != 1 || ch.To != 3 || f.versions() != "s1=3 s2=3 s3=3 lb1=3 lb2=3" || f.wrong != nil {
		t.Errorf("%d to %d, %s, %v", ch.From, ch.To, f.versions(), f.wrong)
	}
	for i, name := range f.order {
		if !strings.HasSuffix(name, []string{" 2", " 3"}[i/5]) {
			t.Errorf("order %q", f.order)
			break
		}
	}
	if ch, err := f.coordinator().Apply(context.Background(), f.text, Options{}); err != nil || len(ch.Steps) != 0 || len(ch.Notes) != 0 {
		t.Errorf("applied, and again: %v %v", ch, err)
	}
}

// TestStopsAndGoesOn: a daemon that fails half way stops the series; the same
// change again finishes it.
func TestStopsAndGoesOn(t *testing.T) {
	f := newFleet(t, twoOfEach)
	f.start(t, "s1x", "unix:/run/fairlead/s1x.sock")
	f.get("lb2").fail = func(v uint64, done bool) error {
		if v == 2 && !done {
			return errors.New("disk full")
		}
		return nil
	}
	_, err := f.coordinator().Do(context.Background(), Options{}, op(controller.Add, "s1x"))
	if err == nil || !strings.Contains(err.Error(), "stopped at version 2") || !strings.Contains(err.Error(), "lb2: disk full") ||
		!strings.Contains(err.Error(), "version 2: s1, s2, s1x") {
		t.Errorf("%v", err)
	}
	if connect.CodeOf(Code(err)) != connect.CodeAborted {
		t.Errorf("code %v", connect.CodeOf(Code(err)))
	}
	f.get("lb2").fail = nil
	ch, err := f.coordinator().Do(context.Background(), Options{}, op(controller.Add, "s1x"))
	if err != nil || f.versions() != "s1=3 s2=3 lb1=3 lb2=3" || f.wrong != nil {
		t.Errorf("%v %v %s %v", ch, err, f.versions(), f.wrong)
	}
}

// TestSilent: what a daemon that does not answer allows depends on what its
// programs may still do.
func TestSilent(t *testing.T) {
	ctx := context.Background()
	f := newFleet(t, three)
	f.away("lb2", errors.New("connection refused"))
	c := f.coordinator()
	ch, err := c.Do(ctx, Options{}, op(controller.Drain, "s3"))
	if err != nil || len(ch.Silent) != 1 || ch.Silent[0].Name != "lb2" || f.versions() != "s1=2 s2=2 s3=2 lb1=2 lb2=1" {
		t.Fatalf("drain without lb2: %v %v %s", ch, err, f.versions())
	}
	_, err = c.Do(ctx, Options{}, controller.Op{Kind: controller.Rotate})
	if err == nil || !strings.Contains(err.Error(), "lb2 does not answer (connection refused), and its programs may run on with version 2: version 4 stamps epoch 1") {
		t.Errorf("rotation without lb2: %v", err)
	}
	if connect.CodeOf(Code(err)) != connect.CodeFailedPrecondition || f.versions() != "s1=2 s2=2 s3=2 lb1=2 lb2=1" {
		t.Errorf("%v %s", connect.CodeOf(Code(err)), f.versions())
	}
	_, err = c.Do(ctx, Options{Without: []string{"lb3"}}, controller.Op{Kind: controller.Rotate})
	if err == nil || !strings.Contains(err.Error(), "without lb3: neither") {
		t.Errorf("without a daemon that nobody knows: %v", err)
	}
	if _, err = c.Do(ctx, Options{Without: []string{"lb2"}}, controller.Op{Kind: controller.Rotate}); err != nil || f.versions() != "s1=4 s2=4 s3=4 lb1=4 lb2=1" {
		t.Errorf("rotation without lb2, which is gone: %v %s", err, f.versions())
	}
	// It comes back and catches up.
	f.away("lb2", nil)
	if _, err = c.Do(ctx, Options{}, op(controller.Undrain, "s3")); err != nil || f.versions() != "s1=5 s2=5 s3=5 lb1=5 lb2=5" {
		t.Errorf("%v %s", err, f.versions())
	}
	// An agent that is away: its connections cannot be counted.
	f.away("s3", errors.New("no route to host"))
	_, err = c.Do(ctx, Options{}, op(controller.Remove, "s3"))
	if err == nil || !strings.Contains(err.Error(), "s3: it would be removed, but its agent does not answer (no route to host)") {
		t.Errorf("remove a server that does not answer: %v", err)
	}
	if _, err = c.Do(ctx, Options{Without: []string{"s3"}}, op(controller.Remove, "s3")); err != nil {
		t.Errorf("remove a server that is gone: %v", err)
	}
	for name := range maps.Keys(f.links) {
		f.away(name, errors.New("connection refused"))
	}
	if ch, err = c.Do(ctx, Options{}, op(controller.Drain, "s1")); err != nil || len(ch.Silent) != 5 || ch.Answered() {
		t.Errorf("nobody there: %+v %v", ch, err)
	}
}

// TestSilentStandby: a standby is set to work while a daemon is away if that
// daemon had the standby, as far as anybody knows.
func TestSilentStandby(t *testing.T) {
	ctx := context.Background()
	setUp := func(t *testing.T, standby bool) (*fleet, *Coordinator) {
		f := newFleet(t, twoOfEach)
		f.start(t, "s3", config.DefaultAPI("s3"))
		c := f.coordinator()
		add := op(controller.Add, "s3")
		add.Standby = true
		if standby { // while everybody is there
			if _, err := c.Do(ctx, Options{}, add); err != nil {
				t.Fatal(err)
			}
		}
		f.away("lb2", errors.New("connection refused"))
		if !standby {
			if _, err := c.Do(ctx, Options{}, add); err != nil {
				t.Fatal(err)
			}
		}
		// The newest version is not lb2's in any case.
		if _, err := c.Do(ctx, Options{}, op(controller.Drain, "s1")); err != nil {
			t.Fatal(err)
		}
		return f, c
	}
	t.Run("it has it", func(t *testing.T) {
		f, c := setUp(t, true)
		if _, err := c.Do(ctx, Options{}, op(controller.Undrain, "s3")); err != nil || f.wrong != nil {
			t.Errorf("%v, %v", err, f.wrong)
		}
	})
	t.Run("it does not", func(t *testing.T) {
		f, c := setUp(t, false)
		before := f.versions()
		_, err := c.Do(ctx, Options{}, op(controller.Undrain, "s3"))
		want := "lb2 does not answer (connection refused), and its programs run on: it had version 1 when it was last heard of, and slot 2 of vip web (s3), " +
			"which takes new connections in version 4, came with version 2; start it, or --without lb2 if the machine is gone"
		if err == nil || err.Error() != want || f.versions() != before {
			t.Errorf("%v, %s", err, f.versions())
		}
		if connect.CodeOf(Code(err)) != connect.CodeFailedPrecondition {
			t.Errorf("code %v", connect.CodeOf(Code(err)))
		}
		f.away("lb2", nil)
		if _, err := c.Do(ctx, Options{}, op(controller.Undrain, "s3")); err != nil || f.wrong != nil {
			t.Errorf("once it is back: %v, %v", err, f.wrong)
		}
	})
	t.Run("nobody knows", func(t *testing.T) {
		f, c := setUp(t, true)
		f.mu.Lock()
		for _, d := range f.daemons {
			d.fresh = true
		}
		f.mu.Unlock()
		_, err := c.Do(ctx, Options{}, op(controller.Undrain, "s3"))
		if err == nil || !strings.Contains(err.Error(), "nobody knows which version it has, and slot 2 of vip web (s3)") {
			t.Errorf("%v", err)
		}
		if _, err = c.Do(ctx, Options{}, op(controller.Undrain, "s1")); err != nil {
			t.Errorf("what it knew from the first: %v", err)
		}
		if _, err = c.Do(ctx, Options{Without: []string{"lb2"}}, op(controller.Undrain, "s3")); err != nil {
			t.Errorf("without it: %v", err)
		}
	})
	t.Run("an agent", func(t *testing.T) {
		f, c := setUp(t, false)
		f.away("lb2", nil)
		if _, err := c.Do(ctx, Options{}, op(controller.Undrain, "s1")); err != nil {
			t.Fatal(err)
		}
		s3 := f.get("s3")
		// It was restored from a backup, and is away again.
		f.mu.Lock()
		old := f.get("s1").cur.Clone()
		old.Version, old.VIPs[0].Slots = 1, old.VIPs[0].Slots[:2]
		s3.cur, s3.away = old, errors.New("no route to host")
		f.mu.Unlock()
		f.heard("s3")
		_, err := c.Do(ctx, Options{}, op(controller.Undrain, "s3"))
		if err == nil || !strings.Contains(err.Error(), "s3 does not answer (no route to host), and its programs run on: it had version 1") {
			t.Errorf("%v", err)
		}
	})
}

// TestNewServerSilent: a server is not added before its agent runs.
func TestNewServerSilent(t *testing.T) {
	f := newFleet(t, twoOfEach)
	_, err := f.coordinator().Do(context.Background(), Options{}, op(controller.Add, "s7"))
	if err == nil || err.Error() != "s7 does not answer (no such socket), so its connections would get no cookies; start `fairlead host` there first" {
		t.Errorf("%v", err)
	}
}

// What goes wrong without an agent is the scheme's: beamer has no cookies.
func TestNewServerSilentChains(t *testing.T) {
	f := newFleet(t, strings.NewReplacer("policy: wrr", "scheme: beamer", "[eth0]}", "[eth0], source: 10.0.0.0/24}").Replace(twoOfEach))
	_, err := f.coordinator().Do(context.Background(), Options{}, op(controller.Add, "s7"))
	if err == nil || !strings.HasPrefix(err.Error(), "s7 does not answer (no such socket), so packets could be passed on neither to it nor by it; start `fairlead host` there first") {
		t.Errorf("%v", err)
	}
}

// TestForwardingSilent: who does not hear of another forwarding would send tunnels
// that servers refuse, or refuse those that are sent.
func TestForwardingSilent(t *testing.T) {
	for _, name := range []string{"lb2", "s2"} {
		f := newFleet(t, three)
		f.load(t, strings.Replace(three, "name: web,", "name: web, forwarding: gue,", 1))
		f.away(name, errors.New("connection refused"))
		before := f.versions()
		_, err := f.coordinator().Apply(context.Background(), f.text, Options{})
		if err == nil || !strings.Contains(err.Error(), name+" does not answer") || !strings.Contains(err.Error(), "forwarding ipip in version 1, gue in version 2") || f.versions() != before {
			t.Errorf("%s: %v, %s", name, err, f.versions())
		}
		if _, err := f.coordinator().Apply(context.Background(), f.text, Options{Without: []string{name}}); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
		f.away(name, nil)
	}
}

// TestStoppedText: what went wrong at several is not said by the first one's words.
func TestStoppedText(t *testing.T) {
	s := &Stopped{Step: &controller.Assignment{Version: 2}, Daemons: []*Daemon{{Name: "lb1", Err: connect.NewError(connect.CodeUnavailable, errors.New("unexpected EOF"))}}}
	if got := api.ErrorText(s); got != s.Error() || !strings.Contains(got, "lb1: unexpected EOF") {
		t.Errorf("%q", got)
	}
}

// TestLive: agents' counts refuse what would break their connections, also of
// servers that the file no longer names.
func TestLive(t *testing.T) {
	f := newFleet(t, three)
	f.get("s3").live = []*fairleadv1.LiveVIP{{Id: 1, Name: "web", Slot: 2, Server: "s3", Epochs: []*fairleadv1.EpochLive{{Epoch: 0, Connections: 4}}}}
	f.load(t, twoOfEach)
	_, err := f.coordinator().Apply(context.Background(), f.text, Options{})
	if err == nil || err.Error() != "vip web: s3: it would be removed, but 4 connections are live; drain it and wait until they end, or --force" {
		t.Errorf("%v", err)
	}
	f.get("s3").live = nil
	if _, err := f.coordinator().Apply(context.Background(), f.text, Options{}); err != nil || f.get("s3").cur.Version != 3 {
		t.Errorf("%v, and the agent that leaves has version %d", err, f.get("s3").cur.Version)
	}
}

// TestRecount: connections that came while a VIP was drained keep it.
func TestRecount(t *testing.T) {
	f := newFleet(t, strings.Replace(three, "vips: [", "vips: [{name: old, address: 192.0.2.9, port: 80, servers: [s1]}, ", 1))
	f.load(t, three)
	s1 := f.get("s1")
	s1.fail = func(v uint64, done bool) error {
		if done && v == 2 {
			s1.live = []*fairleadv1.LiveVIP{{Id: 1, Epochs: []*fairleadv1.EpochLive{{Epoch: 0, Connections: 1}}}}
		}
		return nil
	}
	_, err := f.coordinator().Apply(context.Background(), f.text, Options{})
	if err == nil || err.Error() != "version 2 is in force, and the rest is not done: vip old: s1: its VIP would be removed, but 1 connection is live; wait until they end, or --force" {
		t.Errorf("%v", err)
	}
	s1.fail, s1.live = nil, nil
	if ch, err := f.coordinator().Apply(context.Background(), f.text, Options{}); err != nil || ch.To != 3 {
		t.Errorf("%+v %v", ch, err)
	}
}

// TestDisagreement: daemons that began from different files are brought to
// what most of them have.
func TestDisagreement(t *testing.T) {
	f := newFleet(t, twoOfEach)
	f.load(t, three)
	f.start(t, "s3", f.cfg.Servers[2].API) // from the newer file
	f.forced = true
	ch, err := f.coordinator().Apply(context.Background(), f.text, Options{})
	if err != nil || ch.From != 1 || ch.To != 5 || f.versions() != "s1=5 s2=5 s3=5 lb1=5 lb2=5" ||
		len(ch.Notes) != 1 || ch.Notes[0] != "version 1 differs at s3: all get that of s1, s2, lb1, lb2, as version 3" {
		t.Errorf("%+v %v %s", ch, err, f.versions())
	}
}

// TestForeign: a daemon with another deployment's state takes nobody over.
func TestForeign(t *testing.T) {
	f := newFleet(t, three)
	foreign := f.get("s3").cur.Clone()
	foreign.Version, foreign.HashKey[0] = 50, foreign.HashKey[0]+1
	f.get("s3").cur = foreign
	f.forced = true
	ch, err := f.coordinator().Do(context.Background(), Options{}, op(controller.Drain, "s1"))
	if err != nil || f.versions() != "s1=2 s2=2 s3=50 lb1=2 lb2=2" || len(ch.Silent) != 1 || !strings.Contains(ch.Silent[0].Err.Error(), "another deployment") {
		t.Errorf("%+v %v %s", ch, err, f.versions())
	}
}

// TestTwoAtOnce: of changes at the same time each is done or refused, and
// everybody ends with the same: who drains all servers at once leaves one.
func TestTwoAtOnce(t *testing.T) {
	f := newFleet(t, three)
	var wg sync.WaitGroup
	var last atomic.Int32
	for _, name := range []string{"s1", "s2", "s3"} {
		wg.Go(func() {
			for {
				_, err := f.coordinator().Do(context.Background(), Options{}, op(controller.Drain, name))
				if err == nil {
					return
				}
				if isLast(err, name) {
					last.Add(1)
					return
				}
			}
		})
	}
	wg.Wait()
	a := f.get("s1").cur
	for _, d := range f.daemons {
		if d.cur.Digest() != a.Digest() {
			t.Errorf("%s differs: %s", d.name, f.versions())
		}
	}
	if works := working(a); works != 1 || last.Load() != 1 || f.wrong != nil {
		t.Errorf("%d work, %d refused, %v", works, last.Load(), f.wrong)
	}
}

// isLast: err refuses to drain server, as the last of its VIP.
func isLast(err error, server string) bool {
	refused := controller.Refusal(nil)
	return errors.As(err, &refused) && strings.Contains(err.Error(), server+" is the last of its servers that takes new connections")
}

// working is how many servers of web take new connections.
func working(a *controller.Assignment) (n int) {
	v, _ := a.VIP("web")
	for _, s := range v.Slots {
		if s.State == controller.Active {
			n++
		}
	}
	return n
}

// TestAnyFailures: whatever fails, before or after a daemon took a version,
// at no time do two daemons have versions that do not mix, no version goes
// back, and once nothing fails the change is done.
func TestAnyFailures(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFleet(t, three)
		f.start(t, "s4", "unix:/run/fairlead/s4.sock").cur = f.get("s1").cur
		broken := true
		for _, name := range []string{"s1", "s2", "s3", "s4", "lb1", "lb2"} {
			d, last, calls := f.get(name), uint64(0), 0
			// Drawn before: the daemons are called from many goroutines.
			fails := rapid.SliceOfN(rapid.IntRange(0, 5), 40, 40).Draw(rt, name)
			d.fail = func(v uint64, done bool) error { // under the fleet's lock
				if done && v <= last && f.wrong == nil {
					f.wrong = fmt.Errorf("%s goes from %d to %d", d.name, last, v)
				}
				if done {
					last = v
				}
				if calls++; broken && calls < len(fails) && fails[calls] == 0 {
					return errors.New("failed")
				}
				return nil
			}
		}
		c := f.coordinator()
		ops := []controller.Op{{Kind: controller.Add, VIP: "web", Server: "s4", Address: netip.AddrFrom4([4]byte{10, 0, 1, 4})},
			op(controller.Drain, "s1"), op(controller.Remove, "s2"), {Kind: controller.Rotate}}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(ops)-1), 1, 8).Draw(rt, "ops") {
			_, _ = c.Do(context.Background(), Options{}, ops[i])
			if f.bad() != nil {
				rt.Fatal(f.bad())
			}
		}
		f.mu.Lock()
		broken = false
		f.mu.Unlock()
		if _, err := c.Apply(context.Background(), f.text, Options{}); err != nil {
			rt.Fatal(err)
		}
		steps, changes, err := controller.Plan(f.cfg, f.get("s1").cur, controller.LiveCounts{}, f.get("s1").cur.VIPs[0].Slots[0].RestUntil, false)
		if err != nil || len(steps) > 0 || f.wrong != nil {
			rt.Fatalf("%q %v %v", changes, err, f.wrong)
		}
		for _, d := range f.daemons {
			if d.name != "s4" && d.cur.Digest() != f.get("s1").cur.Digest() {
				rt.Fatalf("%s differs: %s", d.name, f.versions())
			}
		}
	})
}
