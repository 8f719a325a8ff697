// Package tables says what a balancer, a host and a switch hold in their maps,
// made of an assignment and of what each of them sees (health, time, reports):
//
//	Balancer(assignment, view) ─▶ Plan: VIP table, server lines, `tables`
//	Host(assignment, server)   ─▶ HostPlan: host_vips (Table), peers, sources
//	Switch(assignment)         ─▶ SwitchPlan: pool, bucket table; NextHops
//
// The kernel rooms only write it: fill, flip, retire. Pure: no I/O, no kernel, no
// clock; moments and randomness are the caller's.
package tables

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// VIP is one VIP as a balancer will bring it into force.
type VIP struct {
	ID    uint32
	Name  string
	Lines Range
	Hops  bool   // packets carry hops (scheme beamer)
	Slots []Line // by slot, len == Lines.Size
}

// Server is what the plan says of a slot; nothing beyond the range.
func (v VIP) Server(slot uint32) Line {
	if slot < uint32(len(v.Slots)) {
		return v.Slots[slot]
	}
	return Line{}
}

// Plan is an assignment turned into what the idle half of a balancer's maps
// shall hold.
type Plan struct {
	VIPs    []VIP
	Entries []bpf.VIP // of the VIP table; where entry i stands: At[i]
	At      []int
	Seed    uint64   // the VIP table's
	Tables  []uint32 // of the half, from its first entry; none where they are only measured
	// Rates are the limits of VIPs that have any, by id.
	Rates map[uint32]bpf.Rates
	// Stretches are the bucket tables, behind Tables.
	Stretches []Stretch
	Size      uint32    // entries of the half in use, stretches' included
	Need      uint64    // the same wherever the half begins
	Due       time.Time // when time alone makes another plan; zero: never
	flat      uint32    // how many entries Tables are
}

// Capacity is what the loaded maps hold.
type Capacity struct {
	Lines        uint32 // server lines of all VIPs
	TableEntries uint32 // entries of one half of `tables`
	VIPIDs       uint32 // ids 1..VIPIDs-1 have counters
}

// View is what a balancer knows besides its assignment.
type View struct {
	Moment
	// Name is the balancer's.
	Name string
	// Down, which may be nil, names slots that health checks found down.
	Down func(vipID uint32, slot uint16) bool
	// Steers says that tunnels may be steered (VIP.Steer).
	Steers bool
	// Held are the server lines in force, by VIP id: a VIP keeps its range as
	// long as its slots fit.
	Held map[uint32]Range
	Half uint32 // the idle one
	Capacity
	// Hashes and Chains are kept from plan to plan. Without chains (nil) the plan
	// says what VIPs of scheme beamer need, and leaves their rows out; without
	// hashes the same of all VIPs.
	Hashes Hashes
	Chains *Chains
	Random *rand.Rand
}

// base is the first entry of `tables` of the half.
func (v *View) base() uint32 { return v.Half * v.TableEntries }

// Balancer turns an assignment into what a balancer's maps hold. It changes
// nothing but what view keeps from plan to plan.
func Balancer(a *controller.Assignment, view View) (*Plan, error) {
	a = ofBalancers(a.AtBalancers())
	p := &Plan{}
	alloc := newAllocator(view.Held, view.Lines)
	var keys []Key
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if v.ID == 0 || v.ID >= view.VIPIDs {
			return nil, fmt.Errorf("vip %s: id %d: the loaded program counts VIPs 1 to %d", v.Name, v.ID, view.VIPIDs-1)
		}
		r := setsOf(v, view.Down, view.Now)
		p.sooner(r.due)
		pv, err := planServers(v, &r, alloc, view.Steers)
		if err != nil {
			return nil, err
		}
		e, err := p.service(a, v, pv.Lines, &r, &view)
		if err != nil {
			return nil, err
		}
		if v.Scheme.Row().Hops {
			if err := p.bucketed(v, &e, &view); err != nil {
				return nil, err
			}
		}
		p.VIPs = append(p.VIPs, pv)
		p.Entries = append(p.Entries, e)
		keys = append(keys, Key{Addr: v.Address, Port: v.Port, Proto: e.Proto})
	}
	view.Hashes.forgetOthers(a)
	view.Chains.forgetOthers(a)
	if err := p.place(view.base(), view.TableEntries); err != nil {
		return nil, err
	}
	keys = p.addressEntries(a, keys)
	var err error
	if p.At, p.Seed, err = Build(keys, view.Random); err != nil {
		return nil, fmt.Errorf("%d vips need %d entries in the VIP table (one each; one for each address's ICMP, and one for its fragments of each protocol): %w; give VIPs common addresses, with ports of their own, or make a second deployment", len(a.VIPs), len(keys), err)
	}
	for i, k := range keys {
		e := &p.Entries[i]
		e.Addr, e.Port, e.Proto, e.Used = k.Words(), k.PortBE(), k.Proto, 1
	}
	return p, nil
}

// sooner notes that time alone makes another plan at t; zero: never.
func (p *Plan) sooner(t time.Time) {
	if p.Due.IsZero() || !t.IsZero() && t.Before(p.Due) {
		p.Due = t
	}
}

// planServers gives v its range and says what each of its lines names.
func planServers(v *controller.VIP, sets *sets, alloc *allocator, steers bool) (VIP, error) {
	forwarding := v.Forwarding.Row()
	r, err := alloc.take(v)
	if err != nil {
		return VIP{}, err
	}
	pv := VIP{ID: v.ID, Name: v.Name, Lines: r, Hops: v.Scheme.Row().Hops, Slots: make([]Line, r.Size)}
	for _, s := range v.Slots {
		l := Line{Addr: s.Address.Unmap(), Forwarding: bpf.Forwarding(forwarding.Number), Flags: sets.lines[s.Number], Hops: pv.Hops}
		if steers && forwarding.Steers() && v.Steers() {
			l.Flags, l.Steer = l.Flags|bpf.LineSteered, v.Steer
		}
		pv.Slots[s.Number] = l
	}
	return pv, nil
}

// service makes the entry of a VIP and appends its tables; base is the first
// entry of the half.
func (p *Plan) service(a *controller.Assignment, v *controller.VIP, r Range,
	sets *sets, view *View) (bpf.VIP, error) {
	base, hashes := view.base(), view.Hashes
	e := bpf.VIP{Id: v.ID, FirstLine: r.First, Slots: r.Size, HashKey: a.HashKey, Proto: v.Proto()}
	scheme, layout := v.Scheme.Row(), layoutOf(v)
	e.Scheme, e.Policy = scheme.Number, v.Policy.Row().Number
	e.Shift, e.Carrier = uint8(layout.Shift()), v.Carries().Number
	e.SeatBits, e.OpenEpoch = uint8(layout.SeatBits|layout.TierBits<<4), uint8(a.StampEpoch&1)
	if v.IsFront() {
		e.Tier = uint8(bpf.TierOne)
	} else if layout.TierBits > 0 {
		number, _ := v.InTierTwo(view.Name)
		e.Tier = uint8(number)
	}
	p.limit(&e, v.Rates)
	if scheme.Finds == vip.ByCookie {
		for _, k := range a.Keys {
			e.Key[k.Epoch&1] = cheetah.VIPKey(k.Secret, v.Address, v.Port, e.Proto)
			e.Epochs |= 1 << (k.Epoch & 1)
		}
	}
	if v.Affinity == vip.Address {
		e.Flags |= uint8(bpf.VIPAffinity)
	}
	if v.Fragments == vip.Addresses {
		e.Flags |= uint8(bpf.VIPFragAddresses)
	}
	if v.ICMPEcho {
		e.Flags |= uint8(bpf.VIPICMPEcho)
	}
	if v.Share {
		e.Flags |= uint8(bpf.VIPShare)
	}
	if sets.all {
		e.Flags |= uint8(bpf.VIPTrackAll)
	}
	if v.EntriesFirst() {
		e.Flags |= uint8(bpf.VIPMigrates)
	}
	if v.EntriesFirst() || v.Enters() {
		e.Scheme = bpf.Migrates
	}
	if scheme.Chains() {
		return e, nil // its table comes behind all others: bucketed, place
	}
	takers := policy.Table(string(v.Policy), policyMembers(sets.takers))
	e.NewTable, e.NewSize = base+p.flat, uint32(len(takers))
	p.flat += e.NewSize
	e.HashTable = base + p.flat
	if hashes == nil {
		rows, err := hashSize(v, sets)
		if err != nil {
			return e, err
		}
		e.HashSize = uint32(rows)
	} else {
		hash, err := hashes.compile(v, sets)
		if err != nil {
			return e, err
		}
		e.HashSize = uint32(len(hash.Entries))
		e.HashForm, e.AnchorHeld, e.AnchorTrack = uint8(hash.Form), hash.held, hash.track
		p.Tables = append(append(p.Tables, takers...), hash.Entries...)
	}
	p.flat += e.HashSize
	if v.Policy.Row().Hashes {
		e.NewTable, e.NewSize = e.HashTable, e.HashSize
		if !sets.working {
			e.NewSize = 0 // those that drain keep what they have
		}
	}
	return e, nil
}

// layoutOf is the cookie's layout of a VIP. UDP and scheme stateless have no
// cookies and so no width in the configuration: their hash tables have the
// default's rows.
func layoutOf(v *controller.VIP) cheetah.Layout {
	if v.CookieBits == 0 {
		return cheetah.Layout{Bits: v.Width().DefaultBits}
	}
	return v.Layout()
}

func policyMembers(slots []controller.Slot) []policy.Member {
	m := make([]policy.Member, len(slots))
	for i, s := range slots {
		m[i] = policy.Member{Slot: s.Number, Weight: s.Weight, Name: s.Server}
	}
	return m
}

// addressEntries appends what stands in the VIP table beside the services:
// the settings of each address, and who takes its fragments of a protocol.
// Where VIPs of one address differ, the one that accepts fragments takes
// them, else the one with the smallest id; echo is answered if one of them
// says so.
func (p *Plan) addressEntries(a *controller.Assignment, keys []Key) []Key {
	order := make([]int, len(a.VIPs))
	for i := range order {
		order[i] = i
	}
	accepts := func(i int) bool { return a.VIPs[i].Fragments == vip.Addresses }
	sort.Slice(order, func(x, y int) bool {
		i, j := order[x], order[y]
		if accepts(i) != accepts(j) {
			return accepts(i)
		}
		return a.VIPs[i].ID < a.VIPs[j].ID
	})
	index := map[Key]int{}
	add := func(k Key, e bpf.VIP) {
		if at, ok := index[k]; ok {
			p.Entries[at].Flags |= e.Flags & uint8(bpf.VIPICMPEcho)
			return
		}
		index[k] = len(keys)
		e.Flags |= uint8(bpf.VIPAddressEntry)
		p.Entries, keys = append(p.Entries, e), append(keys, k)
	}
	for _, i := range order {
		e, addr := p.Entries[i], a.VIPs[i].Address.Unmap()
		icmp := uint8(wire.ProtoICMP)
		if addr.Is6() {
			icmp = wire.ProtoICMPv6
		}
		add(Key{Addr: addr, Proto: icmp}, e)
		add(Key{Addr: addr, Proto: e.Proto | bpf.ProtoFrag}, e)
	}
	for _, i := range order {
		v := &a.VIPs[i]
		if !v.MPTCP || !v.Scheme.Row().Hops {
			continue
		}
		icmp := uint8(wire.ProtoICMP)
		if v.Address.Unmap().Is6() {
			icmp = wire.ProtoICMPv6
		}
		joinEntry(&p.Entries[index[Key{Addr: v.Address.Unmap(), Proto: icmp}]], v, p.Entries[i])
	}
	return keys
}
