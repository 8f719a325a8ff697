package host

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
)

// Counters are sums over all CPUs since the maps were made.
type Counters struct {
	VIPs    []VIPCounters        // by ascending id
	Reasons []kernel.ReasonCount // every one of the closed set, in the enum's order
}

// VIPCounters counts one VIP's packets; bytes are from layer 3 on, without
// the tunnel.
type VIPCounters struct {
	ID                 uint32
	PacketsIn, BytesIn uint64
	PacketsOut         uint64 // TCP only
	BytesOut           uint64
	Restored           uint64 // packets whose TSecr was restored
	Live               [2]uint64
	LiveWithoutCookie  uint64
	LiveParityEpoch    [2]uint32 // which epoch Live's parities stand for
	Handshakes         bpf.OffloadCount
}

// Live is a VIP's established connections.
type Live struct {
	// Epochs counts those that carry a cookie by the epoch of its key. They
	// end if that epoch is dropped while servers change.
	Epochs map[uint32]uint64
	// NoCookie counts the others: no timestamps, or older than the agent.
	NoCookie uint64
}

func (a *Agent) ids() []uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []uint32
	for _, v := range a.table.Entries {
		ids = append(ids, v.Id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (a *Agent) vip(id uint32) (VIPCounters, error) {
	a.mu.Lock()
	c := VIPCounters{ID: id, LiveParityEpoch: a.epoch}
	a.mu.Unlock()
	var cpus []bpf.HostCount
	if err := a.set.HostVipCount.Lookup(id, &cpus); err != nil {
		return c, fmt.Errorf("map host_vip_count: %w", err)
	}
	var live [3]int64
	for _, n := range cpus {
		c.PacketsIn += n.Packets[0]
		c.BytesIn += n.Bytes[0]
		c.PacketsOut += n.Packets[1]
		c.BytesOut += n.Bytes[1]
		c.Restored += n.Restored
		for i := range live {
			live[i] += n.Live[i]
		}
	}
	// Sums can be below 0 for a moment: the CPUs are read one after another.
	c.Live = [2]uint64{uint64(max(live[0], 0)), uint64(max(live[1], 0))}
	c.LiveWithoutCookie = uint64(max(live[2], 0))
	return c, nil
}

// Counters reads all counters.
func (a *Agent) Counters() (Counters, error) {
	var c Counters
	for _, id := range a.ids() {
		v, err := a.vip(id)
		if err != nil {
			return c, err
		}
		if v.Handshakes, err = a.offloadCount(id); err != nil {
			return c, err
		}
		c.VIPs = append(c.VIPs, v)
	}
	var err error
	c.Reasons, err = kernel.ReadReasons(a.set.HostReasons, reasonNames)
	return c, err
}

// Live counts the established connections of each VIP, by its id.
func (a *Agent) Live() (map[uint32]Live, error) {
	live := map[uint32]Live{}
	for _, id := range a.ids() {
		v, err := a.vip(id)
		if err != nil {
			return nil, err
		}
		l := Live{map[uint32]uint64{}, v.LiveWithoutCookie}
		for parity, n := range v.Live {
			if n > 0 {
				l.Epochs[v.LiveParityEpoch[parity]] += n
			}
		}
		live[id] = l
	}
	return live, nil
}

// reasonNames are the names of enum fl_host_reason, by number.
var reasonNames = bpf.Names[bpf.HostReason](bpf.HostReasonCount)

// Status is what `fairlead status` shows of an agent's kernel side.
type Status struct {
	PinDir     string
	Adopted    bool // this process found the maps pinned
	HZ         int
	Lookup     bool // sockets are asked for their timestamp offset
	Interfaces []Interface
	VIPs       []string // addresses served, in order
	Warnings   []string // what the machine should not be like, and the remedy
	// Peers are the other servers of this server's VIPs of schemes beamer and
	// faild, by VIP and slot.
	Peers []Peer
	// Sources is how many prefixes tunnels are taken from.
	Sources int
	// Joins are where MPTCP's joins come in; what is wrong with them is among
	// Warnings.
	Joins []netip.AddrPort
	// Copies of ICMP errors sent to other servers since this process started.
	Copies uint64
	// Generations are those of VIPs of scheme beamer, by id.
	Generations map[uint32]Generations
}

// Generations of a VIP's bucket table (serial numbers).
type Generations struct {
	Assigned uint32 // by the assignment in force
	// Seen is the newest that packets carried, Assigned where none was newer.
	Seen uint32
}

// Status never fails: but for the generations seen, which are left out where
// they cannot be read, it shows what the agent knows.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := Status{PinDir: a.o.PinDir, Adopted: a.adopted, HZ: a.jiffies.HZ, Lookup: a.control.load(offLookup) != 0, Interfaces: slices.Clone(a.devices)}
	for vip := range a.table.VIPs() {
		s.VIPs = append(s.VIPs, vip.String())
	}
	slices.Sort(s.VIPs)
	if a.noTimestamps {
		s.Warnings = append(s.Warnings, warnNoTimestamps)
	}
	s.Warnings = append(s.Warnings, a.astray.List()...)
	s.Warnings = append(s.Warnings, a.offload.warnings()...)
	s.Warnings = append(s.Warnings, tables.OpenSources(a.table.Open, a.open)...)
	a.describeOwn(&s)
	return s
}

// describeOwn fills in what is about schemes beamer and faild.
func (a *Agent) describeOwn(s *Status) {
	s.Peers, s.Sources, s.Copies = a.listPeers(), len(a.sources), a.copies.Load()
	slices.SortFunc(s.Peers, func(p, q Peer) int { return cmp.Or(cmp.Compare(p.VIP, q.VIP), cmp.Compare(p.Slot, q.Slot)) })
	s.Joins = slices.SortedFunc(maps.Keys(a.joins.want), netip.AddrPort.Compare)
	if a.joins.why != "" {
		s.Warnings = append(s.Warnings, a.joins.why)
	}
	if why := a.counts.failed.Load(); why != nil && *why != "" {
		s.Warnings = append(s.Warnings, *why)
	}
	if !a.noTimestamps && slices.ContainsFunc(s.Joins, func(at netip.AddrPort) bool { return at.Addr().Is6() }) {
		s.Warnings = append(s.Warnings, warnJoins6)
	}
	tunnels := false
	for _, v := range a.chains {
		if !v.Scheme.Hops {
			continue
		}
		tunnels = true
		g := Generations{v.Generation, v.Generation}
		var own bpf.HostOwn
		if a.set.HostOwn.Lookup(v.ID, &own) == nil && own.Newest != 0 && own.Newest-g.Seen <= bpf.GenerationAhead {
			g.Seen = own.Newest
		}
		if s.Generations == nil {
			s.Generations = map[uint32]Generations{}
		}
		s.Generations[v.ID] = g
	}
	if tunnels && len(a.sources) == 0 {
		s.Warnings = append(s.Warnings, "no balancer's tunnel source is known, so tunnels of scheme beamer are dropped (drop_foreign_source): give the balancers source or source6")
	}
}
