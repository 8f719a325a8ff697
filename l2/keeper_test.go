package l2

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/l2/l2test"
	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/wire"
)

// ether is balancers on an Ethernet that agree in one store.
type ether struct {
	l2test.Ether
	t     *testing.T
	store *store.Memory
	vips  []netip.Addr
	all   []*balancer
	// lines are how many warnings there were.
	lines atomic.Int64
}

// Enabled, Handle, WithAttrs and WithGroup implement slog.Handler.
func (e *ether) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (e *ether) Handle(context.Context, slog.Record) error        { e.lines.Add(1); return nil }
func (e *ether) WithAttrs([]slog.Attr) slog.Handler               { return e }
func (e *ether) WithGroup(string) slog.Handler                    { return e }

// client is a balancer's way to the store, which may be another one later.
type client struct {
	atomic.Pointer[store.MemoryClient]
}

func newClient(m *store.Memory) *client {
	c := &client{}
	c.Store(m.Client())
	return c
}

func (c *client) Members(endpoints []string) { c.Load().Members(endpoints) }

// remade has the store be another one, m, from now on.
func (c *client) remade(m *store.Memory) error { return c.Swap(m.Client()).Close() }

func (c *client) Read(ctx context.Context, prefix string) ([]store.Entry, int64, error) {
	return c.Load().Read(ctx, prefix)
}

func (c *client) Commit(ctx context.Context, ifs []store.If, ops ...store.Op) (int64, error) {
	return c.Load().Commit(ctx, ifs, ops...)
}

func (c *client) Watch(ctx context.Context, prefix string, rev int64) iter.Seq2[[]store.Event, error] {
	return c.Load().Watch(ctx, prefix, rev)
}

func (c *client) Grant(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	return c.Load().Grant(ctx, ttl)
}

func (c *client) Campaign(ctx context.Context, election, candidate string, lease store.Lease) (store.Leadership, error) {
	return c.Load().Campaign(ctx, election, candidate, lease)
}

func (c *client) Close() error { return c.Load().Close() }

// balancer is one of them.
type balancer struct {
	*l2test.End
	e    *ether
	name string
	k    *Keeper
	s    *client
	// ready and well: what its node says.
	ready, well atomic.Bool
	stop        func()
	done        chan struct{}
}

func newEther(t *testing.T, addresses int) *ether {
	e := &ether{t: t, store: store.NewMemory()}
	for i := range addresses {
		e.vips = append(e.vips, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	return e
}

// start has a balancer begin, ready.
func (e *ether) start(name string) *balancer {
	b := &balancer{e: e, name: name, s: newClient(e.store), done: make(chan struct{})}
	b.ready.Store(true)
	b.well.Store(true)
	b.k = New(Options{Name: name, Store: b.s, Node: b.node, Log: slog.New(e)})
	b.End = e.Plug(wire.MAC{2, 0, 0, 0, 0, name[len(name)-1]}, b.k.Holds, b.k.Heard)
	e.all = append(e.all, b)
	ctx, stop := context.WithCancel(context.Background())
	b.stop = func() { stop(); <-b.done }
	go func() {
		defer close(b.done)
		if err := b.k.Run(ctx, b.End); err != nil {
			e.t.Error(err)
		}
		_ = b.s.Close()
	}()
	return b
}

func (b *balancer) node() (bgp.Node, error) {
	n := bgp.Node{Name: b.name}
	if !b.ready.Load() {
		n.NotReady = []string{"it is not"}
	}
	for _, a := range b.e.vips {
		v := bgp.VIP{Name: a.String(), Address: a, Servers: 2, Healthy: 2}
		if !b.well.Load() {
			v.Healthy = 0
		}
		n.VIPs = append(n.VIPs, v)
	}
	return n, nil
}

// crash is a loss of power.
func (b *balancer) crash() {
	b.Plugged.Store(false)
	b.s.Load().Cut(true)
}

// has is which addresses it answers for, as others hear.
func (b *balancer) has() (all []netip.Addr) {
	for _, a := range b.e.vips {
		if b.k.Holds(a) {
			all = append(all, a)
		}
	}
	return all
}

// once waits until each address is answered for by one balancer, and says how long
// that took.
func (e *ether) once(most time.Duration) time.Duration {
	e.t.Helper()
	began := time.Now()
	for {
		synctest.Wait()
		wrong := slices.IndexFunc(e.vips, func(a netip.Addr) bool { return e.Holders(a) != 1 })
		took := time.Since(began)
		if wrong < 0 {
			return took
		}
		if took > most {
			e.t.Fatalf("after %v %d answer for %s", took, e.Holders(e.vips[wrong]), e.vips[wrong])
		}
		time.Sleep(time.Millisecond)
	}
}

// end stops all that are there.
func (e *ether) end() {
	for _, b := range e.all {
		b.s.Load().Cut(false)
		b.stop()
	}
}

func run(t *testing.T, test func(t *testing.T, e *ether)) {
	synctest.Test(t, func(t *testing.T) {
		e := newEther(t, 12)
		defer e.end()
		test(t, e)
	})
}

// Addresses are spread, the rule says how, and one balancer that comes later is given
// its part one by one.
func TestSpread(t *testing.T) {
	run(t, func(t *testing.T, e *ether) {
		a := e.start("lb1")
		e.once(time.Second)
		b := e.start("lb2")
		began := time.Now()
		for last := 0; len(b.has()) < 4 || time.Since(began) < 20*time.Second; {
			synctest.Wait()
			if now := len(b.has()); now > last+1 || now > 0 && time.Since(began) < settled {
				t.Fatalf("%d addresses moved after %v, where there were %d", now, time.Since(began), last)
			} else {
				last = now
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("lb2 has %v", b.has())
			}
			time.Sleep(10 * time.Millisecond)
		}
		e.once(time.Millisecond)
		for _, vip := range e.vips {
			if want := Order(vip, []string{"lb1", "lb2"})[0]; (want == "lb1") != a.k.Holds(vip) {
				t.Errorf("%s is not held by %s", vip, want)
			}
		}
	})
}

// A holder that loses its power is replaced long before its lease ends; one that has
// no store then, as well.
func TestPowerLoss(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("store silent ", silent), func(t *testing.T) {
			run(t, func(t *testing.T, e *ether) {
				a, b, c := e.start("lb1"), e.start("lb2"), e.start("lb3")
				e.once(time.Second)
				time.Sleep(20 * time.Second)
				had := len(a.has())
				if had == 0 || had == len(e.vips) {
					t.Fatalf("lb1 has %d", had)
				}
				if silent {
					for _, all := range e.all {
						all.s.Load().Cut(true)
					}
					time.Sleep(2 * leaseTime)
					e.once(time.Millisecond)
				}
				a.crash()
				most := 700 * time.Millisecond
				if silent {
					most = time.Second // they go by what they hear alone
				}
				t.Logf("%d addresses taken after %v", had, e.once(most))
				time.Sleep(30 * time.Second)
				e.once(time.Millisecond)
				b.s.Load().Cut(false)
				c.s.Load().Cut(false)
				time.Sleep(10 * time.Second)
				e.once(time.Millisecond)
				for _, vip := range e.vips {
					if h := b.k.holders[vip].Name; h == "lb1" || b.k.Holds(vip) != (h == "lb2") {
						t.Errorf("%s is held by %q in the store", vip, h)
					}
				}
			})
		})
	}
}

// One that is told to stop, is not ready or has no healthy server hands over at once,
// and nobody is asked in vain meanwhile.
func TestHandsOver(t *testing.T) {
	for what, do := range map[string]func(b *balancer){
		"stops":             func(b *balancer) { b.k.Leave(context.Background()) },
		"not ready":         func(b *balancer) { b.ready.Store(false); b.k.Poke() },
		"no healthy server": func(b *balancer) { b.well.Store(false); b.k.Poke() },
	} {
		t.Run(what, func(t *testing.T) {
			run(t, func(t *testing.T, e *ether) {
				a, b := e.start("lb1"), e.start("lb2")
				e.once(time.Second)
				go do(a)
				began := time.Now()
				for len(b.has()) < len(e.vips) {
					synctest.Wait()
					for _, vip := range e.vips {
						if e.Holders(vip) == 0 {
							t.Fatalf("nobody answers for %s after %v", vip, time.Since(began))
						}
					}
					if time.Since(began) > 100*time.Millisecond {
						t.Fatalf("lb2 has %v", b.has())
					}
					time.Sleep(time.Millisecond)
				}
				time.Sleep(2 * time.Second)
				if len(a.has()) > 0 {
					t.Errorf("lb1 still has %v", a.has())
				}
				if what == "stops" {
					return
				}
				a.ready.Store(true)
				a.well.Store(true)
				time.Sleep(30 * time.Second)
				e.once(time.Millisecond)
				if len(a.has()) == 0 {
					t.Error("nothing came back to lb1")
				}
			})
		})
	}
}

// Where nobody may hold an address nobody does.
func TestNobody(t *testing.T) {
	run(t, func(t *testing.T, e *ether) {
		a := e.start("lb1")
		e.once(time.Second)
		a.well.Store(false)
		time.Sleep(2 * time.Second)
		if len(a.has()) > 0 {
			t.Errorf("lb1 has %v without a healthy server", a.has())
		}
		if r := a.k.Report(); r.Addresses[0].Why[0] != "no healthy server in VIP 192.0.2.0, of 2" {
			t.Errorf("%+v", r.Addresses[0])
		}
	})
}

// While the store is silent for all nothing moves; when it is back, neither.
func TestStoreGone(t *testing.T) {
	run(t, func(t *testing.T, e *ether) {
		a, b := e.start("lb1"), e.start("lb2")
		e.once(time.Second)
		time.Sleep(20 * time.Second)
		had := a.has()
		for range 3 {
			a.s.Load().Cut(true)
			b.s.Load().Cut(true)
			for range 600 {
				time.Sleep(100 * time.Millisecond)
				if is := a.has(); !slices.Equal(is, had) {
					t.Fatalf("lb1 has %v, and had %v", is, had)
				}
				e.once(time.Millisecond)
			}
			// One is back before the other: what the store forgot is taken.
			a.s.Load().Cut(false)
			time.Sleep(50 * time.Millisecond)
			b.s.Load().Cut(false)
			time.Sleep(30 * time.Second)
			e.once(time.Millisecond)
			if is := a.has(); !slices.Equal(is, had) {
				t.Fatalf("afterwards lb1 has %v, and had %v", is, had)
			}
		}
	})
}

// A store that is made anew counts from lower revisions than the one before: what it
// says counts.
func TestStoreAnew(t *testing.T) {
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprint("with one gone ", gone), func(t *testing.T) {
			run(t, func(t *testing.T, e *ether) {
				for i := range 1000 {
					if _, err := e.store.Client().Commit(t.Context(), nil, store.Op{Key: "other", Value: fmt.Append(nil, i)}); err != nil {
						t.Fatal(err)
					}
				}
				a, b := e.start("lb1"), e.start("lb2")
				e.once(time.Second)
				time.Sleep(20 * time.Second)
				if had := len(b.has()); had == 0 || had == len(e.vips) {
					t.Fatalf("lb2 has %d", had)
				}
				e.store = store.NewMemory()
				for _, one := range e.all {
					if err := one.s.remade(e.store); err != nil {
						t.Fatal(err)
					}
				}
				if gone {
					b.crash()
				}
				time.Sleep(30 * time.Second)
				e.once(time.Millisecond)
				entries, _, err := e.store.Client().Read(t.Context(), holdersKey)
				if err != nil || len(entries) != len(e.vips) {
					t.Fatalf("%d addresses are held: %v", len(entries), err)
				}
				for _, entry := range entries {
					var says holder
					if err := json.Unmarshal(entry.Value, &says); err != nil {
						t.Fatal(err)
					}
					vip := netip.MustParseAddr(entry.Key[len(holdersKey):])
					if h := a.k.holders[vip]; h.Name != says.Name || h.rev != entry.Rev {
						t.Errorf("lb1 says that %q has %s since revision %d, and the store that %q has since %d", h.Name, vip, h.rev, says.Name, entry.Rev)
					}
					if (says.Name == "lb1") != a.k.Holds(vip) || gone && says.Name == "lb2" {
						t.Errorf("%s is held by %q in the store", vip, says.Name)
					}
				}
			})
		})
	}
}

// Machines that claim an address make a line in the log in a minute, however many they
// say they are.
func TestMadeUp(t *testing.T) {
	run(t, func(t *testing.T, e *ether) {
		a := e.start("lb1")
		e.once(time.Second)
		time.Sleep(2 * handover)
		for minute := range int64(3) {
			before := e.lines.Load()
			for i := range 1000 {
				a.k.Heard(e.vips[0], wire.MAC{2, 1, byte(minute), 0, byte(i >> 8), byte(i)})
			}
			if lines, kept := e.lines.Load()-before, len(a.k.said); lines != 1 || kept != 1 {
				t.Errorf("%d lines, and %d are remembered", lines, kept)
			}
			time.Sleep(forgiven + time.Second)
		}
	})
}

// What a balancer may hold is written again when somebody deletes it or writes there: the
// same words, too, which would not go with its lease.
func TestFitRewritten(t *testing.T) {
	run(t, func(t *testing.T, e *ether) {
		a := e.start("lb1")
		e.once(time.Second)
		time.Sleep(20 * time.Second)
		read := func() store.Entry {
			entries, _, err := a.s.Load().Read(t.Context(), fitKey+"lb1")
			if err != nil || len(entries) != 1 {
				t.Fatal(entries, err)
			}
			return entries[0]
		}
		right := read()
		for _, op := range []store.Op{{Key: fitKey + "lb1", Delete: true}, {Key: fitKey + "lb1", Value: []byte("[]")}, {Key: fitKey + "lb1", Value: []byte("{")}, {Key: fitKey + "lb1", Value: right.Value}} {
			rev, err := a.s.Load().Commit(t.Context(), nil, op)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if now := read(); now.Rev <= rev || string(now.Value) != string(right.Value) {
				t.Errorf("%s, was %s", now.Value, right.Value)
			}
		}
	})
}

// One that alone has no store goes on until others have its addresses.
func TestCutOff(t *testing.T) {
	run(t, func(t *testing.T, e *ether) {
		a, b := e.start("lb1"), e.start("lb2")
		e.once(time.Second)
		time.Sleep(20 * time.Second)
		a.s.Load().Cut(true)
		for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(time.Millisecond) {
			synctest.Wait()
			for _, vip := range e.vips {
				if e.Holders(vip) == 0 {
					t.Fatalf("nobody answers for %s after %v", vip, time.Since(began))
				}
			}
		}
		if len(b.has()) != len(e.vips) || len(a.has()) != 0 {
			t.Errorf("lb1 has %v, lb2 %v", a.has(), b.has())
		}
	})
}

// One that hears nobody, though it has its store, takes addresses from those that
// live less and less often.
func TestDeaf(t *testing.T) {
	run(t, func(t *testing.T, e *ether) {
		a, b := e.start("lb1"), e.start("lb2")
		e.once(time.Second)
		time.Sleep(20 * time.Second)
		b.Plugged.Store(false)
		minute := func() float64 {
			before := a.Announced.Load() + b.Announced.Load()
			time.Sleep(time.Minute)
			return float64(a.Announced.Load()+b.Announced.Load()-before) / float64(len(e.vips)*len(announcements))
		}
		first, second := minute(), minute()
		t.Logf("%.1f and %.1f moves of an address within a minute", first, second)
		if first < 2 || first > 10 || second > first {
			t.Error("want some at first, and few then")
		}
		b.Plugged.Store(true)
		time.Sleep(10 * time.Second)
		e.once(time.Millisecond)
	})
}
