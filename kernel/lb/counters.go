package lb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sort"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
)

// Counters are what packets left behind since the balancer was loaded; they
// never go down while a VIP lives, whatever happens to its servers.
type Counters struct {
	VIPs    []VIPCounters        // by id
	Reasons []kernel.ReasonCount // every reason, in the order of enum fl_reason
}

// VIPCounters are one VIP's.
type VIPCounters struct {
	ID             uint32
	Packets, Bytes uint64 // forwarded, of servers that are gone too
	NewConnections uint64
	Fallback       uint64 // scheme cheetah: packets without a valid cookie
	FlowHits       uint64 // packets that went by the flow table
	BadCookies     uint64 // cookies that named no slot
	Dropped        uint64
	Tracked        uint64           // entries made in the flow table
	FlowFull       uint64           // entries refused: the bucket's were all live and confirmed
	FlowReplaced   uint64           // entries made in place of a live one of another flow
	ShareLost      uint64           // entries not told to other balancers: the ring was full
	Seated         uint64           // connections that were given a seat
	SeatFull       uint64           // that were not: their partition was full
	SeatWrong      uint64           // packets whose seat was not their connection's
	Rated          uint64           // packets dropped for a limit of rates
	RateLost       uint64           // buckets of sources that gave way before they were full
	Servers        []ServerCounters // by slot
}

// ServerCounters are those of one slot's server.
type ServerCounters struct {
	Slot    uint16
	Address netip.Addr
	Packets uint64
	Bytes   uint64 // as they came in, from layer 3 on
	Opened  uint64 // new connections
	Open    int64  // open connections, counted from SYN, FIN and RST
}

// Counters reads all counters.
func (l *LB) Counters() (Counters, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return Counters{}, errClosed
	}
	if l.old != nil && l.oldReadable {
		f, err := readForce(l.old)
		if err != nil {
			return Counters{}, err
		}
		return readCounters(l.old, f)
	}
	return readCounters(l.set, l.force)
}

func readCounters(o *objects, f inForce) (Counters, error) {
	var c Counters
	carried, err := readCarried(o)
	if err != nil {
		return c, err
	}
	for id, r := range f.ranges {
		v, err := readVIPCounters(o, id, r, carried)
		if err != nil {
			return c, err
		}
		c.VIPs = append(c.VIPs, v)
	}
	sort.Slice(c.VIPs, func(i, j int) bool { return c.VIPs[i].ID < c.VIPs[j].ID })
	c.Reasons, err = kernel.ReadReasons(o.Maps[mapReasons], reasonNames)
	return c, err
}

func readVIPCounters(o *objects, id uint32, r tables.Range, carried map[carriedKey]carriedCount) (VIPCounters, error) {
	v := VIPCounters{ID: id}
	var cpus []bpf.VIPCPU
	if err := o.Maps[mapVIPCPU].Lookup(id, &cpus); err != nil {
		return v, fmt.Errorf("counters of VIP %d: %w", id, err)
	}
	for _, x := range cpus {
		v.NewConnections += x.NewConns
		v.Fallback += x.Fallback
		v.FlowHits += x.FlowHits
		v.BadCookies += x.BadCookies
		v.Dropped += x.Dropped
		v.Tracked += x.Tracked
		v.FlowFull += x.FlowFull
		v.FlowReplaced += x.FlowReplaced
		v.ShareLost += x.ShareLost
		v.Seated += x.Seated
		v.SeatFull += x.SeatFull
		v.SeatWrong += x.SeatWrong
		v.Rated += x.Rated
		v.RateLost += x.RateLost
	}
	gone := carried[carriedKey{id, carriedGone}]
	v.Packets, v.Bytes = gone.Packets, gone.Bytes
	for slot := range r.Size {
		n, addr, err := readLine(o, r.First+slot)
		if err != nil {
			return v, err
		}
		n.add(carried[carriedKey{id, slot}])
		v.Packets += n.Packets
		v.Bytes += n.Bytes
		if !addr.IsValid() {
			continue
		}
		open, err := o.readConns(r.First + slot)
		if err != nil {
			return v, err
		}
		v.Servers = append(v.Servers, ServerCounters{Slot: uint16(slot), Address: addr,
			Packets: n.Packets, Bytes: n.Bytes, Opened: n.Opened, Open: max(0, int64(open))})
	}
	return v, nil
}

// readLine sums a line over the CPUs; addr is invalid where it names nobody.
func readLine(o *objects, line uint32) (n carriedCount, addr netip.Addr, err error) {
	var cpus []bpf.Line
	if err := o.Maps[mapLines].Lookup(line, &cpus); err != nil {
		return n, addr, fmt.Errorf("server line %d: %w", line, err)
	}
	for _, x := range cpus {
		n.add(carriedCount{x.Packets, x.Bytes, x.Opened})
	}
	if tables.LineWord(cpus[0].MacDst).Forwarding() != 0 {
		addr = tables.AddrOf(cpus[0].Addr)
	}
	return n, addr, nil
}

func readCarried(o *objects) (map[carriedKey]carriedCount, error) {
	all := map[carriedKey]carriedCount{}
	var k carriedKey
	var n carriedCount
	it := o.Maps[mapCarried].Iterate()
	for it.Next(&k, &n) {
		all[k] = n
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("carried counters: %w", err)
	}
	return all, nil
}

// carry adds a line's counts, read from the set `from`, to a key.
func (l *LB) carry(from *objects, line uint32, to carriedKey) error {
	n, _, err := readLine(from, line)
	if err != nil {
		return err
	}
	return l.addCarried(to, n)
}

// carryMoved adds what was carried for a slot to its VIP's sum: the server
// that it counted is gone.
func (l *LB) carryMoved(vip, slot uint32) error {
	var n carriedCount
	key := carriedKey{vip, slot}
	err := l.set.Maps[mapCarried].Lookup(key, &n)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.addCarried(carriedKey{vip, carriedGone}, n); err != nil {
		return err
	}
	return l.set.Maps[mapCarried].Delete(key)
}

func (l *LB) addCarried(key carriedKey, n carriedCount) error {
	if n == (carriedCount{}) {
		return nil
	}
	var have carriedCount
	if err := l.set.Maps[mapCarried].Lookup(key, &have); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	have.add(n)
	return l.set.Maps[mapCarried].Put(key, have)
}

// dropCarried forgets a VIP that is gone.
func (l *LB) dropCarried(vip uint32) error {
	all, err := readCarried(l.set)
	if err != nil {
		return err
	}
	for k := range all {
		if k.VIP == vip {
			if err := l.set.Maps[mapCarried].Delete(k); err != nil {
				return err
			}
		}
	}
	return nil
}

// resetVIP prepares the counters of an id that a new VIP takes.
func (l *LB) resetVIP(id uint32) error {
	cpus := make([]bpf.VIPCPU, ebpf.MustPossibleCPU())
	for i := range cpus {
		cpus[i].Random = rand.Uint64() | 1 // a generator's state must not be zero
	}
	if err := l.set.Maps[mapVIPCPU].Put(id, cpus); err != nil {
		return fmt.Errorf("counters of VIP %d: %w", id, err)
	}
	return l.dropCarried(id)
}
