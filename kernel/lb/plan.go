package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sort"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/tables"
)

// IP protocol numbers that stand in the VIP table.
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoFrag   = 0x80 // FL_PROTO_FRAG
)

// serverLine is what a server line shall say, without the next hop.
type serverLine struct {
	addr       netip.Addr // invalid: the line names no server
	forwarding bpf.Forwarding
	flags      uint8 // lineClosed, lineDown, lineSteered
	hops       bool  // packets carry hops (scheme beamer)
	// steer is the VIP's setting, "" where its row is not read, or not known
	// which it was.
	steer string
}

// lineRange is a VIP's stretch of server lines.
type lineRange struct{ first, size uint32 }

func (r lineRange) end() uint32 { return r.first + r.size }

// plannedVIP is one VIP as Apply will bring it into force.
type plannedVIP struct {
	id    uint32
	name  string
	lines lineRange
	hops  bool         // of scheme beamer
	slots []serverLine // by slot, len == lines.size
}

// plan is an assignment turned into what the idle half shall hold. Making
// one changes nothing.
type plan struct {
	vips    []plannedVIP
	entries []bpf.VIP // where entry i stands: at[i]
	at      []int
	seed    uint64
	tables  []uint32 // of the half, from its first entry; none where they are only measured
	flat    uint32   // how many entries these are
	// stretches are the bucket tables, behind tables.
	stretches []stretch
	size      uint32    // entries of the half in use, stretches' included
	need      uint64    // the same wherever the half begins
	due       time.Time // when time alone makes another plan; zero: never
	took      time.Duration
}

// server is what the plan says of a slot; nothing beyond the range.
func (v plannedVIP) server(slot uint32) serverLine {
	if slot < uint32(len(v.slots)) {
		return v.slots[slot]
	}
	return serverLine{}
}

// capacity is what the loaded maps hold.
type capacity struct {
	lines        uint32 // server lines of all VIPs
	tableEntries uint32 // entries of one half of `tables`
	vipIDs       uint32 // ids 1..vipIDs-1 have counters
}

// makePlan turns an assignment into table contents at a time. ranges are the
// server lines in force; a VIP keeps its range as long as its slots fit.
// Without chains (nil) it says what VIPs of scheme beamer need, and leaves
// their rows out; without hashes the same of all VIPs.
func makePlan(a *controller.Assignment, down func(vipID uint32, slot uint16) bool, when moment,
	ranges map[uint32]lineRange, c capacity, half uint32, hashes hashTables, chains *bucketTables, random *rand.Rand) (*plan, error) {
	a = ofBalancers(a)
	p := &plan{}
	alloc := newAllocator(ranges, c.lines)
	var keys []tables.Key
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if v.ID == 0 || v.ID >= c.vipIDs {
			return nil, fmt.Errorf("vip %s: id %d: the loaded program counts VIPs 1 to %d", v.Name, v.ID, c.vipIDs-1)
		}
		r := setsOf(v, down, when.now)
		p.sooner(r.due)
		pv, err := planServers(v, &r, alloc)
		if err != nil {
			return nil, err
		}
		e, err := p.service(a, v, pv.lines, &r, half*c.tableEntries, hashes)
		if err != nil {
			return nil, err
		}
		if v.Scheme == beamer {
			if err := p.bucketed(v, &e, down, when, chains); err != nil {
				return nil, err
			}
		}
		p.vips = append(p.vips, pv)
		p.entries = append(p.entries, e)
		keys = append(keys, tables.Key{Addr: v.Address, Port: v.Port, Proto: e.Proto})
	}
	hashes.forgetOthers(a)
	chains.forgetOthers(a)
	if err := p.place(half*c.tableEntries, c); err != nil {
		return nil, err
	}
	keys = p.addressEntries(a, keys)
	var err error
	if p.at, p.seed, err = tables.Build(keys, random); err != nil {
		return nil, fmt.Errorf("%d vips need %d entries in the VIP table (one each; one for each address's ICMP, and one for its fragments of each protocol): %w; give VIPs common addresses, with ports of their own, or make a second deployment", len(a.VIPs), len(keys), err)
	}
	for i, k := range keys {
		e := &p.entries[i]
		e.Addr, e.Port, e.Proto, e.Used = k.Words(), k.PortBE(), k.Proto, 1
	}
	return p, nil
}

// sooner notes that time alone makes another plan at t; zero: never.
func (p *plan) sooner(t time.Time) {
	if p.due.IsZero() || !t.IsZero() && t.Before(p.due) {
		p.due = t
	}
}

// planServers gives v its range and says what each of its lines names.
func planServers(v *controller.VIP, sets *sets, alloc *allocator) (plannedVIP, error) {
	forwarding, ok := map[string]bpf.Forwarding{
		"ipip": bpf.FwdIPIP, "gue": bpf.FwdGUE, "l2": bpf.FwdL2}[v.Forwarding]
	if !ok {
		return plannedVIP{}, fmt.Errorf("vip %s: forwarding %q: must be ipip, gue or l2", v.Name, v.Forwarding)
	}
	r, err := alloc.take(v)
	if err != nil {
		return plannedVIP{}, err
	}
	pv := plannedVIP{id: v.ID, name: v.Name, lines: r, hops: v.Scheme == beamer, slots: make([]serverLine, r.size)}
	for _, s := range v.Slots {
		pv.slots[s.Number] = serverLine{s.Address.Unmap(), forwarding, sets.lines[s.Number], v.Scheme == beamer, v.Steer}
	}
	return pv, nil
}

// service makes the entry of a VIP and appends its tables; base is the first
// entry of the half.
func (p *plan) service(a *controller.Assignment, v *controller.VIP, r lineRange,
	sets *sets, base uint32, hashes hashTables) (bpf.VIP, error) {
	e := bpf.VIP{Id: v.ID, FirstLine: r.first, Slots: r.size, HashKey: a.HashKey}
	switch v.Protocol {
	case "tcp":
		e.Proto = protoTCP
	case "udp":
		e.Proto = protoUDP
	default:
		return e, fmt.Errorf("vip %s: protocol %q: must be tcp or udp", v.Name, v.Protocol)
	}
	policies := map[string]bpf.Policy{"rr": bpf.PolicyRR, "wrr": bpf.PolicyWRR,
		"p2c": bpf.PolicyP2C, "least-conn": bpf.PolicyLeastConn, "hash": bpf.PolicyHash}
	pol, ok := policies[v.Policy]
	if !ok {
		return e, fmt.Errorf("vip %s: policy %q: must be rr, wrr, p2c, least-conn or hash", v.Name, v.Policy)
	}
	e.Policy = uint8(pol)
	layout := layoutOf(v)
	if err := layout.Validate(); err != nil {
		return e, fmt.Errorf("vip %s: %w", v.Name, err)
	}
	e.Shift = uint8(layout.Shift())
	switch v.Scheme {
	case "cheetah":
		e.Scheme = uint8(bpf.SchemeCheetah)
		for _, k := range a.Keys {
			e.Key[k.Epoch&1] = cheetah.VIPKey(k.Secret, v.Address, v.Port, e.Proto)
			e.Epochs |= 1 << (k.Epoch & 1)
		}
	case "jet":
		e.Scheme = uint8(bpf.SchemeJet)
	case "full-ct":
		e.Scheme = uint8(bpf.SchemeFullCT)
	case "stateless":
		e.Scheme = uint8(bpf.SchemeStateless)
	case beamer:
		e.Scheme = uint8(bpf.SchemeBeamer)
	default:
		return e, fmt.Errorf("vip %s: scheme %q: must be cheetah, jet, full-ct, stateless or beamer", v.Name, v.Scheme)
	}
	if v.Scheme != "cheetah" && pol != bpf.PolicyHash {
		return e, fmt.Errorf("vip %s: policy %q: scheme %s places connections by their hash alone: must be hash", v.Name, v.Policy, v.Scheme)
	}
	if v.Affinity == "address" {
		e.Flags |= uint8(bpf.VIPAffinity)
	}
	if v.Fragments == "addresses" {
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
	if v.Scheme == beamer {
		return e, nil // its table comes behind all others: bucketed, place
	}
	takers := policy.Table(v.Policy, policyMembers(sets.takers))
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
		e.HashSize = uint32(len(hash.entries))
		e.HashForm, e.AnchorHeld, e.AnchorTrack = uint8(hash.form), hash.held, hash.track
		p.tables = append(append(p.tables, takers...), hash.entries...)
	}
	p.flat += e.HashSize
	if pol == bpf.PolicyHash {
		e.NewTable, e.NewSize = e.HashTable, e.HashSize
		if !sets.working {
			e.NewSize = 0 // those that drain keep what they have
		}
	}
	return e, nil
}

// layoutOf is the cookie's layout of a VIP. UDP and scheme stateless have no
// cookies and so no width in the configuration: their hash tables have the
// default's rows, and their slots are bounded by maxSlots alone.
func layoutOf(v *controller.VIP) cheetah.Layout {
	if v.CookieBits == 0 {
		return cheetah.Layout{Bits: config.DefaultCookieBits}
	}
	return cheetah.Layout{Bits: v.CookieBits}
}

// maxSlots is how many slots a VIP can have: what its cookies name, and
// without cookies what the widest cookie would name; with buckets, what a row
// can say beside FL_BUCKET_MOVED and FL_BUCKET_NONE.
func maxSlots(v *controller.VIP) int {
	if v.Scheme == beamer {
		return rowMoved
	}
	if v.CookieBits == 0 {
		return cheetah.Layout{Bits: cheetah.MaxBits}.Slots()
	}
	return layoutOf(v).Slots()
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
func (p *plan) addressEntries(a *controller.Assignment, keys []tables.Key) []tables.Key {
	order := make([]int, len(a.VIPs))
	for i := range order {
		order[i] = i
	}
	accepts := func(i int) bool { return a.VIPs[i].Fragments == "addresses" }
	sort.Slice(order, func(x, y int) bool {
		i, j := order[x], order[y]
		if accepts(i) != accepts(j) {
			return accepts(i)
		}
		return a.VIPs[i].ID < a.VIPs[j].ID
	})
	index := map[tables.Key]int{}
	add := func(k tables.Key, e bpf.VIP) {
		if at, ok := index[k]; ok {
			p.entries[at].Flags |= e.Flags & uint8(bpf.VIPICMPEcho)
			return
		}
		index[k] = len(keys)
		e.Flags |= uint8(bpf.VIPAddressEntry)
		p.entries, keys = append(p.entries, e), append(keys, k)
	}
	for _, i := range order {
		e, addr := p.entries[i], a.VIPs[i].Address.Unmap()
		icmp := uint8(protoICMP)
		if addr.Is6() {
			icmp = protoICMPv6
		}
		add(tables.Key{Addr: addr, Proto: icmp}, e)
		add(tables.Key{Addr: addr, Proto: e.Proto | protoFrag}, e)
	}
	for _, i := range order {
		v := &a.VIPs[i]
		if !v.MPTCP || v.Scheme != beamer {
			continue
		}
		icmp := uint8(protoICMP)
		if v.Address.Unmap().Is6() {
			icmp = protoICMPv6
		}
		joinEntry(&p.entries[index[tables.Key{Addr: v.Address.Unmap(), Proto: icmp}]], v, p.entries[i])
	}
	return keys
}
