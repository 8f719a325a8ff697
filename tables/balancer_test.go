package tables

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// drawAssignment draws VIPs with slots in any state; ids are few, so that a
// series of draws keeps, drops and brings back VIPs.
func drawAssignment(t *rapid.T) *controller.Assignment {
	a := assignment(1, 11)
	a.VIPs = nil
	for _, id := range rapid.SliceOfNDistinct(rapid.Uint32Range(1, 6), 0, 6, rapid.ID[uint32]).Draw(t, "ids") {
		v := controller.VIP{
			ID:       id,
			Settings: vip.Settings{Name: "v", Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(id % 3)}), Port: uint16(id), Protocol: "tcp", Scheme: "cheetah", Policy: rapid.SampledFrom([]vip.Policy{"rr", "wrr", "p2c", "least-conn", "hash"}).Draw(t, "policy"), Forwarding: "ipip", CookieBits: 10, Fragments: rapid.SampledFrom([]string{"drop", "addresses"}).Draw(t, "fragments"), ICMPEcho: rapid.Bool().Draw(t, "echo")},
		}
		for _, n := range rapid.SliceOfNDistinct(rapid.Uint16Range(0, 70), 0, 12, rapid.ID[uint16]).Draw(t, "slots") {
			v.Slots = append(v.Slots, controller.Slot{Number: n, Server: string(rune('a' + n)), Weight: 1,
				Address: netip.AddrFrom4([4]byte{10, 0, byte(id), byte(n)}),
				State:   rapid.SampledFrom([]controller.State{controller.Active, controller.Draining, controller.Joining, controller.Standby, controller.Resting}).Draw(t, "state")})
		}
		a.VIPs = append(a.VIPs, v)
	}
	return a
}

// Over any series of assignments: a VIP keeps its range while its slots fit, and its begin
// where the lines behind are nobody's, no two ranges in force or next overlap, every table stays within its half
// and names only slots that take connections, and every entry is found by the
// kernel's look-up.
func TestPlans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		random := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		c := Capacity{Lines: 4096, TableEntries: 1 << 16, VIPIDs: 4096}
		held, hashes := map[uint32]Range{}, Hashes{}
		for step := range rapid.IntRange(1, 6).Draw(t, "steps") {
			a := drawAssignment(t)
			half := uint32(step % 2)
			p, err := Balancer(a, View{Moment: Moment{Now: setsNow}, Held: held, Half: half, Capacity: c, Hashes: hashes, Random: random})
			if err != nil {
				t.Fatal(err)
			}
			checkRanges(t, held, p)
			checkTables(t, a, p, c, half)
			checkEntries(t, a, p)
			held = map[uint32]Range{}
			for _, v := range p.VIPs {
				held[v.ID] = v.Lines
			}
		}
	})
}

func checkRanges(t *rapid.T, held map[uint32]Range, p *Plan) {
	type owned struct {
		Range
		id uint32
	}
	var all []owned
	for id, r := range held {
		all = append(all, owned{r, id})
	}
	for _, v := range p.VIPs {
		if r, ok := held[v.ID]; ok && r != v.Lines && v.Lines.Size <= r.Size {
			t.Fatalf("VIP %d moved from %v to %v for nothing", v.ID, r, v.Lines)
		}
		if r, ok := held[v.ID]; ok && r.First != v.Lines.First && !slices.ContainsFunc(all, func(o owned) bool { return o.First < r.First+v.Lines.Size && r.End() < o.End() }) {
			t.Fatalf("VIP %d moved from %v to %v, and nobody was in its way: %v", v.ID, r, v.Lines, all)
		}
		all = append(all, owned{v.Lines, v.ID})
	}
	for i, x := range all {
		for _, y := range all[:i] {
			same := x.id == y.id && x.Range.First == y.Range.First // the same, or longer by now
			if !same && x.First < y.End() && y.First < x.End() {
				t.Fatalf("ranges %v and %v overlap", x, y)
			}
		}
	}
}

func checkTables(t *rapid.T, a *controller.Assignment, p *Plan, c Capacity, half uint32) {
	base := half * c.TableEntries
	for i, v := range a.VIPs {
		takes, keeps := map[uint32]bool{}, map[uint32]bool{bpf.RowNone: true}
		for _, s := range v.Slots {
			n := uint32(s.Number)
			takes[n] = s.State == controller.Active
			keeps[n] = s.State != controller.Joining && s.State != controller.Standby
		}
		active := slices.Contains(slices.Collect(maps.Values(takes)), true)
		takes[bpf.RowNone] = !active
		e := p.Entries[i]
		if (e.NewSize == 0) == active {
			t.Fatalf("VIP %d: %d entries for new connections, active servers: %v", v.ID, e.NewSize, active)
		}
		if e.Policy != uint8(bpf.PolicyHash) {
			for x := e.NewTable; x < e.NewTable+e.NewSize; x++ {
				if slot := p.Tables[x-base] & 0xffff; !takes[slot] {
					t.Fatalf("VIP %d: entry %d names slot %d, which takes no connections", v.ID, x, slot)
				}
			}
		}
		for x := e.HashTable; x < e.HashTable+e.HashSize; x++ {
			row := p.Tables[x-base]
			if slot, held := row&bpf.RowNone, row>>15&bpf.RowNone; !takes[slot] || !keeps[held] {
				t.Fatalf("VIP %d: row %d: new connections to slot %d, earlier ones held by %d", v.ID, x-e.HashTable, slot, held)
			}
		}
	}
}

func checkEntries(t *rapid.T, a *controller.Assignment, p *Plan) {
	table := map[int]bpf.VIP{}
	for i, at := range p.At {
		table[at] = p.Entries[i]
	}
	find := func(k Key) (bpf.VIP, bool) {
		first, second := Candidates(k, p.Seed)
		for _, at := range []int{first, second} {
			if e := table[at]; e.Used == 1 && e.Addr == k.Words() && e.Port == k.PortBE() && e.Proto == k.Proto {
				return e, true
			}
		}
		return bpf.VIP{}, false
	}
	for _, v := range a.VIPs {
		if e, ok := find(Key{Addr: v.Address, Port: v.Port, Proto: wire.ProtoTCP}); !ok || e.Id != v.ID {
			t.Fatalf("VIP %d is not found", v.ID)
		}
		echo, fragments := false, false
		for _, o := range a.VIPs {
			if o.Address == v.Address {
				echo, fragments = echo || o.ICMPEcho, fragments || o.Fragments == "addresses"
			}
		}
		e, ok := find(Key{Addr: v.Address, Proto: wire.ProtoICMP})
		if !ok || (bpf.VIPFlags(e.Flags)&bpf.VIPICMPEcho != 0) != echo {
			t.Fatalf("address of VIP %d: entry %v, flags %#x, echo %v", v.ID, ok, e.Flags, echo)
		}
		e, ok = find(Key{Addr: v.Address, Proto: wire.ProtoTCP | bpf.ProtoFrag})
		if !ok || (bpf.VIPFlags(e.Flags)&bpf.VIPFragAddresses != 0) != fragments {
			t.Fatalf("fragments of VIP %d: entry %v, flags %#x, accepted %v", v.ID, ok, e.Flags, fragments)
		}
	}
}

// The message of a full VIP table says what fills it.
func TestBounds(t *testing.T) {
	c := Capacity{Lines: 1 << 15, TableEntries: 1 << 20, VIPIDs: bpf.VIPLines}
	plan := func(a *controller.Assignment) error {
		_, err := Balancer(a, View{Moment: Moment{Now: setsNow}, Capacity: c, Hashes: Hashes{}, Random: rand.New(rand.NewPCG(1, 2))})
		return err
	}
	// The numbers of docs/configuration.md.
	many := func(n int, own bool) *controller.Assignment {
		a := assignment(1)
		for i := range n {
			w := a.VIPs[0]
			w.ID, w.Port = uint32(i+1), 80
			if own {
				w.Address = netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
			} else {
				w.Port = uint16(i + 1)
			}
			a.VIPs = append(a.VIPs, w)
		}
		a.VIPs = a.VIPs[1:]
		return a
	}
	for n, own := range map[int]bool{546: true, 1636: false} {
		if err := plan(many(n, own)); err != nil {
			t.Error(err)
		}
		if err := plan(many(n+1, own)); err == nil || !strings.Contains(err.Error(), "entries in the VIP table") {
			t.Errorf("%d VIPs: %v", n+1, err)
		}
	}
}
