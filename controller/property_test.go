package controller

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// connection is one that is established: what its cookie says, and where it
// really is.
type connection struct {
	vip     identity
	id      uint32 // of the VIP
	slot    uint16
	epoch   uint32
	secret  string
	server  string
	address netip.Addr
}

// follows says why a balancer that has a loses c, nil if it does not.
func (c *connection) follows(a *Assignment) error {
	if !slices.ContainsFunc(a.Keys, func(k Key) bool { return k.Epoch == c.epoch && string(k.Secret) == c.secret }) {
		return fmt.Errorf("version %d has no key of epoch %d", a.Version, c.epoch)
	}
	v := a.byIdentity(c.vip)
	if v == nil {
		return fmt.Errorf("version %d has no such vip", a.Version)
	}
	s, ok := v.Slot(c.slot)
	if !ok {
		return fmt.Errorf("version %d: vip %s has no slot %d", a.Version, v.Name, c.slot)
	}
	if s.Server != c.server || s.Address != c.address {
		return fmt.Errorf("version %d: vip %s: slot %d is %s at %s, not %s at %s", a.Version, v.Name, c.slot, s.Server, s.Address, c.server, c.address)
	}
	return nil
}

// fleet is a deployment under random changes: daemons of two neighbouring
// versions at any time, and connections that come through any of them.
type fleet struct {
	t     *rapid.T
	cur   *Assignment
	now   time.Time
	conns []*connection
	// owner is who last had a slot of a VIP, and until when it rests.
	owner map[[2]uint32]Slot
}

// open makes connections through balancers that have b and hosts that have h.
func (f *fleet) open(b, h *Assignment) {
	for i := range b.VIPs {
		v := &b.VIPs[i]
		for _, s := range v.Slots {
			if s.State != Active || !v.Cookies() || !rapid.Bool().Draw(f.t, "open") {
				continue
			}
			// The agent stamps what it knows of itself.
			hv := h.byIdentity(v.identity())
			if hv == nil {
				f.t.Fatalf("version %d gives %s new connections for %s, and at version %d its agent does not know the VIP", b.Version, s.Server, v.Name, h.Version)
			}
			own, ok := hv.Slot(s.Number)
			if !ok || own.Server != s.Server || own.Address != s.Address {
				f.t.Fatalf("version %d gives slot %d of %s new connections, which %s does not know at version %d", b.Version, s.Number, v.Name, s.Server, h.Version)
			}
			k := h.Keys[slices.IndexFunc(h.Keys, func(k Key) bool { return k.Epoch == h.StampEpoch })]
			f.conns = append(f.conns, &connection{v.identity(), v.ID, s.Number, k.Epoch, string(k.Secret), s.Server, s.Address})
		}
	}
}

// live is what agents count.
func (f *fleet) live() LiveCounts {
	l := LiveCounts{Connections: map[LiveKey]map[uint32]uint64{}, Earlier: map[LiveKey]uint64{}}
	for _, v := range f.cur.VIPs {
		for _, s := range v.Slots {
			l.Earlier[LiveKey{v.ID, s.Server}] = 0 // of what has no cookie there are none
		}
	}
	for _, c := range f.conns {
		k := LiveKey{c.id, c.server}
		if l.Connections[k] == nil {
			l.Connections[k] = map[uint32]uint64{}
		}
		l.Connections[k][c.epoch]++
	}
	return l
}

// take hands over steps, with traffic between any two daemons meanwhile.
func (f *fleet) take(steps []*Assignment, forced bool) {
	if n := len(steps); n > 0 && rapid.IntRange(0, 4).Draw(f.t, "interrupt") == 0 {
		steps = steps[:rapid.IntRange(1, n).Draw(f.t, "steps")]
	}
	for _, next := range steps {
		for _, v := range next.VIPs {
			for _, s := range v.Slots {
				if w := f.cur.byIdentity(v.identity()); w != nil && s.State == Resting {
					if was, ok := w.Slot(s.Number); ok && was.State == Active {
						f.t.Fatalf("version %d: %s rests while version %d gives it new connections", next.Version, s.Server, f.cur.Version)
					}
				}
			}
		}
		if next.Version != f.cur.Version+1 {
			f.t.Fatalf("version %d follows %d", next.Version, f.cur.Version)
		}
		again, err := Decode(next.Encode())
		if err != nil || !bytes.Equal(again.Encode(), next.Encode()) {
			f.t.Fatalf("version %d does not survive JSON: %v", next.Version, err)
		}
		for _, base := range []*Assignment{f.cur, nil} {
			if err := throughDelta(base, again); err != nil {
				f.t.Fatal(err)
			}
		}
		if err := errors.Join(Accept(f.cur, next, f.cur.Version, false), neighbours(f.cur, next)); err != nil {
			f.t.Fatal(err)
		}
		if AgentsMayLag(f.cur, next) == nil {
			if err := eachMayLag(f.cur, next); err != nil {
				f.t.Fatalf("all agents may stay at version %d while others have %d, but %v", f.cur.Version, next.Version, err)
			}
		}
		f.reuse(next)
		f.open(f.cur, next)
		f.open(next, f.cur)
		f.open(next, next)
		f.conns = slices.DeleteFunc(f.conns, func(c *connection) bool {
			err := errors.Join(c.follows(f.cur), c.follows(next))
			if v, w := f.cur.byIdentity(c.vip), next.byIdentity(c.vip); v != nil && w != nil && v.Migration != nil && w.Migration == nil && !w.Cookies() {
				err = errors.Join(err, fmt.Errorf("version %d ends the migration of vip %s, and it lives", next.Version, w.Name))
			}
			if err != nil && !forced {
				f.t.Fatalf("a connection breaks: %v", err)
			}
			return err != nil
		})
		f.cur = next
	}
}

// neighbours is the property that makes two versions mixable, written down
// once more and apart from Mixable.
func neighbours(a, b *Assignment) error {
	for _, p := range [][2]*Assignment{{a, b}, {b, a}} {
		for _, v := range p[0].VIPs {
			for _, s := range v.Slots {
				var other *Slot
				for _, w := range p[1].VIPs {
					if w.Address == v.Address && w.Port == v.Port && w.Protocol == v.Protocol {
						for i := range w.Slots {
							if w.Slots[i].Number == s.Number {
								other = &w.Slots[i]
							}
						}
					}
				}
				if s.State == Active && other == nil {
					return fmt.Errorf("vip %s slot %d active in %d, unknown in %d", v.Name, s.Number, p[0].Version, p[1].Version)
				}
				if other != nil && (other.Server != s.Server || other.Address != s.Address) {
					return fmt.Errorf("vip %s slot %d names two servers in %d and %d", v.Name, s.Number, a.Version, b.Version)
				}
			}
		}
		for _, k := range p[0].Keys {
			if k.Epoch == p[0].StampEpoch && !slices.ContainsFunc(p[1].Keys, func(o Key) bool { return o.Epoch == k.Epoch && bytes.Equal(o.Secret, k.Secret) }) {
				return fmt.Errorf("epoch %d stamped in %d, not decoded in %d", k.Epoch, p[0].Version, p[1].Version)
			}
		}
	}
	return nil
}

// reuse: a slot number goes to another server only when it has rested.
func (f *fleet) reuse(next *Assignment) {
	for _, v := range next.VIPs {
		for _, s := range v.Slots {
			key := [2]uint32{v.ID, uint32(s.Number)}
			if was, ok := f.owner[key]; ok && (was.Server != s.Server || was.Address != s.Address) {
				// A standby that never worked goes without a rest.
				if was.State != Resting && was.State != Standby || was.RestUntil.After(f.now) {
					f.t.Fatalf("version %d at %s: slot %d of %s goes from %s (%s until %s) to %s", next.Version, f.now, s.Number, v.Name, was.Server, was.State, was.RestUntil, s.Server)
				}
			}
			f.owner[key] = s
		}
	}
}

// drawConfig is a file over two VIP addresses and six servers, two of which
// can be at either of two addresses.
func drawConfig(t *rapid.T) *config.Config {
	c := &config.Config{Secret: "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}
	for i := range 6 {
		third := byte(1)
		if i < 2 && rapid.IntRange(0, 5).Draw(t, "moved") == 0 {
			third = 2
		}
		c.Servers = append(c.Servers, config.Server{Name: fmt.Sprintf("s%d", i), Address: netip.AddrFrom4([4]byte{10, 0, third, byte(i + 1)})})
	}
	for i := range 3 {
		if i > 0 && rapid.IntRange(0, 4).Draw(t, "absent") == 0 {
			continue
		}
		v := config.VIP{Settings: vip.Settings{Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), Policy: vip.WRR}, Port: 80}
		// Names go round among VIPs.
		v.Name = fmt.Sprintf("v%d", i)
		if i > 0 && rapid.IntRange(0, 5).Draw(t, "renamed") == 0 {
			v.Name = fmt.Sprintf("v%d", 3-i)
		}
		if slices.ContainsFunc(c.VIPs, func(o config.VIP) bool { return o.Name == v.Name }) {
			v.Name += "b"
		}
		switch rapid.IntRange(0, 9).Draw(t, "form") {
		case 0:
			v.CookieBits = 10
		case 1:
			v.Scheme, v.Policy = vip.Stateless, vip.ByTheHash
		case 2:
			v.Scheme, v.Policy = rapid.SampledFrom([]vip.Scheme{vip.JET, vip.FullCT}).Draw(t, "scheme"), vip.ByTheHash
			v.Hash = rapid.SampledFrom([]chash.Kind{"", chash.KindRing, chash.KindAnchor}).Draw(t, "hash")
		case 3:
			v.Hash = rapid.SampledFrom([]chash.Kind{chash.KindHRW, chash.KindDx}).Draw(t, "hash")
		}
		for _, s := range c.Servers {
			switch rapid.IntRange(0, 4).Draw(t, "member") {
			case 0:
				v.Servers = append(v.Servers, config.Member{Name: s.Name, Drain: true})
			case 1, 2, 3:
				m := config.Member{Name: s.Name, Standby: rapid.IntRange(0, 4).Draw(t, "standby") == 0}
				if chash.Kind(v.Hash).Weighted() {
					m.Weight = rapid.IntRange(1, 3).Draw(t, "weight")
				}
				v.Servers = append(v.Servers, m)
			}
		}
		if !slices.ContainsFunc(v.Servers, func(m config.Member) bool { return !m.Standby }) {
			v.Servers = []config.Member{{Name: "s5"}}
		}
		c.VIPs = append(c.VIPs, v)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNothingBreaks: whatever is applied, changed, interrupted or rotated, in
// any order and with daemons of two neighbouring versions at all times, no
// connection loses its server unless by force, and no slot number is reused
// before it has rested.
func TestNothingBreaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, err := First(drawConfig(t))
		if err != nil {
			t.Fatal(err)
		}
		f := &fleet{t: t, cur: first, now: time.Unix(1_800_000_000, 0), owner: map[[2]uint32]Slot{}}
		f.reuse(first)
		f.open(first, first)
		server := rapid.SampledFrom([]string{"s0", "s1", "s2", "s3", "s4", "s5"})
		vip := rapid.SampledFrom([]string{"", "v0", "v1", "v2"})
		do := func(t *rapid.T, op Op) {
			force := rapid.IntRange(0, 9).Draw(t, "force") == 0
			steps, _, err := Change(f.cur, f.live(), f.now, force, op)
			f.refusedOrFatal(t, err)
			f.take(steps, force)
		}
		named := func(kind Kind) func(*rapid.T) {
			return func(t *rapid.T) {
				do(t, Op{Kind: kind, VIP: vip.Draw(t, "vip"), Server: server.Draw(t, "server"), Weight: 1,
					Standby: kind == Add && rapid.IntRange(0, 2).Draw(t, "standby") == 0})
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { f.t = t },
			"apply": func(t *rapid.T) {
				f.t = t
				force := rapid.IntRange(0, 9).Draw(t, "force") == 0
				cfg := drawConfig(t)
				for range 8 { // as rollout does
					steps, changes, err := Plan(cfg, f.cur, f.live(), f.now, force)
					f.refusedOrFatal(t, err)
					f.take(steps, force)
					if err != nil || len(steps) == 0 || f.cur != steps[len(steps)-1] {
						return // there, refused or interrupted
					}
					if len(changes) == 0 {
						t.Fatalf("%d steps and no word about them", len(steps))
					}
				}
				t.Fatal("applied again and again, and never there")
			},
			"add": named(Add), "drain": named(Drain), "undrain": named(Undrain), "remove": named(Remove), "weight": named(Weight),
			"rotate": func(t *rapid.T) {
				do(t, Op{Kind: Rotate, Key: rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key")})
			},
			"connections end": func(t *rapid.T) {
				f.conns = slices.DeleteFunc(f.conns, func(*connection) bool { return rapid.IntRange(0, 2).Draw(t, "end") > 0 })
			},
			"all connections end": func(t *rapid.T) { f.conns = nil },
			"time passes": func(t *rapid.T) {
				f.now = f.now.Add(time.Duration(rapid.IntRange(1, 5000).Draw(t, "seconds")) * time.Second)
			},
		})
	})
}

// refusedOrFatal: what is not done is refused with a reason, never failed.
func (f *fleet) refusedOrFatal(t *rapid.T, err error) {
	var refused Refusal
	var notFound NotFound
	var invalid Invalid
	if err != nil && !errors.As(err, &refused) && !errors.As(err, &notFound) && !errors.As(err, &invalid) {
		t.Fatal(err)
	}
}

// TestFirstIsDeterministic: two daemons that start from one file agree.
func TestFirstIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		a, err := First(c)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := First(c)
		if !bytes.Equal(a.Encode(), b.Encode()) || a.Digest() != b.Digest() {
			t.Fatalf("%s\n%s", a.Encode(), b.Encode())
		}
		if steps, changes, err := Plan(c, a, LiveCounts{}, time.Now(), false); len(steps) > 0 || err != nil {
			t.Fatalf("the first assignment is not what its file wants: %q %v", changes, err)
		}
	})
}

// TestAccept: versions go forward, one at a time, unless a daemon catches up.
func TestAccept(t *testing.T) {
	cfg, err := config.Parse("f", []byte("servers: [{name: s, address: 10.0.0.1}]\nvips: [{name: v, address: 192.0.2.1, port: 53, protocol: udp, servers: [s]}]"))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := First(cfg)
	b := a.Clone()
	b.Version = 2
	far := b.Clone()
	far.Version = 9
	far.VIPs[0].Slots[0].Address = netip.MustParseAddr("10.0.0.2")
	for _, c := range []struct {
		name      string
		cur, next *Assignment
		expected  uint64
		catchUp   bool
		ok        bool
	}{
		{"first", nil, a, 0, false, true},
		{"first, another expected", nil, a, 1, false, false},
		{"next", a, b, 1, false, true},
		{"changed meanwhile", a, b, 2, false, false},
		{"back", b, a, 2, true, false},
		{"the same", a, a, 1, false, false},
		{"not mixable", a, far, 1, false, false},
		{"catching up", a, far, 1, true, true},
		{"invalid", a, &Assignment{Version: 2}, 1, true, false},
	} {
		if err := Accept(c.cur, c.next, c.expected, c.catchUp); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := Decode([]byte(`{"version": 1, "unknown": 2}`)); err == nil {
		t.Error("an unknown field was decoded")
	}
}

// TestAnyAssignment: what comes from a disk or a network may be anything; it
// is refused or usable, and nothing panics.
func TestAnyAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		good, err := First(cfg)
		if err != nil {
			t.Fatal(err)
		}
		data := good.Encode()
		for range rapid.IntRange(1, 4).Draw(t, "edits") {
			at := rapid.IntRange(0, len(data)-1).Draw(t, "at")
			switch rapid.IntRange(0, 3).Draw(t, "edit") {
			case 0:
				data[at] = rapid.SampledFrom([]byte("0123456789-.:\"{}[],naet\\ \x00")).Draw(t, "byte")
			case 1:
				data = slices.Insert(data, at, rapid.SampledFrom([]byte("0123456789-.e\"")).Draw(t, "byte"))
			case 2:
				data = slices.Delete(data, at, min(at+rapid.IntRange(1, 30).Draw(t, "n"), len(data)))
			case 3: // a line again, or gone
				lines := bytes.SplitAfter(data, []byte("\n"))
				i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
				data = bytes.Join(slices.Replace(slices.Clone(lines), i, i+1, slices.Repeat(lines[i:i+1], rapid.SampledFrom([]int{0, 2}).Draw(t, "times"))...), nil)
			}
			if len(data) == 0 {
				return
			}
		}
		a, err := Decode(data)
		if err != nil {
			return
		}
		_ = Accept(good, a, good.Version, false)
		_, _, _ = Plan(cfg, a, LiveCounts{}, time.Now(), false)
		_, _, _ = Change(a, LiveCounts{}, time.Now(), true, Op{Kind: Rotate, Key: make([]byte, 32)})
	})
}
