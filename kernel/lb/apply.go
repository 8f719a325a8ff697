package lb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// inForce is what the active half says, as far as the daemon must know it.
type inForce struct {
	ranges  map[uint32]tables.Range // by VIP id
	hops    map[uint32]bool         // VIPs of scheme beamer, by id
	first   map[uint32]bool         // VIPs whose entries count more than cookies, by id
	seats   map[uint32]uint32       // VIPs whose connections sit: how long they may be silent
	entries int                     // of the VIP table
	tables  int                     // entries of `tables`
}

// writtenLine is what a server line was last told.
type writtenLine struct {
	server tables.Line
	image  bpf.Line // counters zero
	uneven bool     // as found: not every CPU's copy says this
}

// usable says that packets go out by this line.
func (w writtenLine) usable() bool {
	return w.server.Addr.IsValid() && tables.LineWord(w.image.MacDst).Flags()&bpf.LineUnresolved == 0
}

// resolveLimit bounds how long Apply waits for the next hops of servers that
// it has not seen before; a server that does not answer by then is brought in
// unresolved, and its packets are dropped with a reason until it does. The
// kernel asks again after a second: the second answer is worth waiting for.
const resolveLimit = 1200 * time.Millisecond

// Apply brings an assignment into force. down, which may be nil, names slots
// that health checks found down: they get no new connection, unless every
// server of the VIP is down. For packets the change is atomic: each sees all of
// the old tables or all of the new. A process killed in the middle leaves the
// old ones in force.
//
// due is when the same assignment makes other tables, as a server has warmed
// up or the flows of a draining one have ended: apply it again then. Zero:
// never. It is told after an error too, if the assignment could be planned.
//
// Steps:
//
//  1. plan, which can fail and changes nothing;
//  2. write server lines that are new to the plan: no packet names them yet;
//  3. fill the idle half of `tables` and `vips`;
//  4. flip control.active; a set that is pending takes the links over;
//  5. wait until no packet reads the old half, and clear server lines that
//     nothing names any more, their counts carried.
//
// On an error packets go by the assignment before, unless the error is
// controller.ErrInForce: then they go by a, step 5 is not done, and the next
// Apply does it first.
func (l *LB) Apply(a *controller.Assignment, down func(vipID uint32, slot uint16) bool) (due time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return due, errClosed
	}
	// The idle half and freed lines may be written only when nobody reads them.
	if err := l.finish(); err != nil {
		return due, err
	}
	control, err := l.set.readControl()
	if err != nil {
		return due, err
	}
	idle := control.Active&1 ^ 1
	start := time.Now()
	p, err := tables.Balancer(a, l.view(down, idle))
	if err != nil {
		l.undoBuckets()
		if errors.Is(err, tables.ErrLimit) {
			err = fmt.Errorf("%w; fairlead check says what to write", err)
		}
		return due, fmt.Errorf("assignment %d: %w", a.Version, err)
	}
	err = l.enact(a, p, idle, time.Since(start))
	l.undoBuckets()
	return p.Due, err
}

// view is what Apply plans by.
func (l *LB) view(down func(vipID uint32, slot uint16) bool, idle uint32) tables.View {
	return tables.View{Name: l.o.Name, Moment: l.moment(), Down: down, Steers: l.o.Steer, Held: l.force.ranges, Half: idle,
		Capacity: l.set.capacity(), Hashes: l.hashes, Chains: l.chains, Random: l.random}
}

// enact is Apply from step 2 on.
func (l *LB) enact(a *controller.Assignment, p *tables.Plan, idle uint32, planned time.Duration) error {
	start := time.Now()
	l.watchServers(p)
	if err := l.checkServers(p); err != nil {
		return fmt.Errorf("assignment %d: %w", a.Version, err)
	}
	looked := time.Now()
	if err := l.writeNewLines(p); err != nil {
		return fmt.Errorf("write server lines: %w", err)
	}
	written := time.Now()
	if err := l.set.takeTunnels(a.Sources); err != nil {
		return err
	}
	if err := l.fill(p, idle); err != nil {
		return fmt.Errorf("fill the idle tables: %w", err)
	}
	if err := l.set.writeControl(unsafe.Offsetof(bpf.Control{}.Active), idle); err != nil {
		return err
	}
	since := time.Now()
	l.took = Took{since, planned, looked.Sub(start), written.Sub(looked), since.Sub(written)}
	before := l.force
	l.force = inForce{map[uint32]tables.Range{}, map[uint32]bool{}, migrating(p.Entries), seatIdle(p.Entries), len(p.Entries), int(p.Size)}
	for _, v := range p.VIPs {
		l.force.ranges[v.ID] = v.Lines
		l.force.hops[v.ID] = v.Hops
	}
	swaps := l.old != nil
	if swaps && !l.attached {
		if err := l.swapLinks(p); err != nil {
			return err // packets go by the set before
		}
	}
	l.chains.Enforced(p)
	l.unfinished = func() error {
		if err := kernel.WaitForReaders(); err != nil {
			return err
		}
		if swaps {
			if err := l.settleSwap(p); err != nil {
				return err
			}
			swaps = false
		}
		if err := l.retire(before, p); err != nil {
			return fmt.Errorf("clear server lines: %w", err)
		}
		return nil
	}
	if err := l.finish(); err != nil {
		return fmt.Errorf("assignment %d is %w: %w", a.Version, controller.ErrInForce, err)
	}
	l.log.Debug("assignment in force", "version", a.Version, "vips", len(p.VIPs), "half", idle)
	return nil
}

// finish clears away what the assignment in force has replaced.
func (l *LB) finish() error {
	if l.unfinished == nil {
		return nil
	}
	if err := l.unfinished(); err != nil {
		l.log.Error("clear away what the assignment in force replaced; the next one tries again", "error", err)
		return err
	}
	l.unfinished = nil
	return nil
}

// watchServers looks up the way to each server of the plan.
func (l *LB) watchServers(p *tables.Plan) {
	var list []netip.Addr
	for _, v := range p.VIPs {
		list = slices.Grow(list, len(v.Slots))
		for _, s := range v.Slots {
			if s.Addr.IsValid() {
				list = append(list, s.Addr)
			}
		}
	}
	l.waited = l.watched != nil
	if l.waited && slices.Equal(l.watched, list) {
		return // each was waited for
	}
	servers := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		servers[a] = true
	}
	l.hops.Watch(servers, resolveLimit)
	l.watched = list
}

// checkServers refuses l2 to servers behind a router, which would send them
// to the router's own stack, and tunnels without an outer source.
func (l *LB) checkServers(p *tables.Plan) error {
	for _, v := range p.VIPs {
		for slot, s := range v.Slots {
			if !s.Addr.IsValid() {
				continue
			}
			if vip.ForwardingOf(uint8(s.Forwarding)).Tunnel {
				if l.asker.source(s.Addr).IsUnspecified() {
					return fmt.Errorf("vip %s: slot %d: tunnels to server %v have no source: the balancer's interfaces have no address of that family; give them one, or set source (IPv4) or source6 (IPv6) of this balancer", v.Name, slot, s.Addr)
				}
				continue
			}
			if h := l.hops.Get(s.Addr); h.Via.IsValid() && !h.OnLink() {
				return fmt.Errorf("vip %s: slot %d: server %v is behind router %v; forwarding l2 needs it on the same link, use %s", v.Name, slot, s.Addr, h.Via, strings.Join(vip.TunnelNames(), " or "))
			}
		}
	}
	return nil
}

// writeNewLines makes every line that the plan names say what the plan says.
// Lines whose server goes stay as they are until retire.
func (l *LB) writeNewLines(p *tables.Plan) (err error) {
	l.gather = true
	defer func() {
		l.gather = false
		err = errors.Join(err, l.flushLines(), l.runGathered())
	}()
	l.expectLines(p)
	for _, v := range p.VIPs {
		before, known := l.force.ranges[v.ID]
		if _, lived := l.oldForce.ranges[v.ID]; !known && !lived {
			if err := l.resetVIP(v.ID); err != nil {
				return err
			}
		}
		for slot, s := range v.Slots {
			if err := l.writeNewLine(v, uint32(slot), s, before, known); err != nil {
				return err
			}
		}
	}
	return nil
}

// expectLines makes room for what p's lines say, where they are many more than there were.
func (l *LB) expectLines(p *tables.Plan) {
	lines := 0
	for _, v := range p.VIPs {
		lines += int(v.Lines.Size)
	}
	if lines > manyLines && lines > len(l.written)+len(l.written)/2 {
		written := make(map[uint32]writtenLine, lines)
		maps.Copy(written, l.written)
		l.written = written
	}
}

func (l *LB) writeNewLine(v tables.VIP, slot uint32, s tables.Line, before tables.Range, known bool) error {
	line := v.Lines.First + slot
	was, written := l.written[line]
	switch {
	case !known || !v.Lines.Has(slot, before):
		// A line that is not in force: whatever it says is old.
		n := int32(0)
		if known && slot < before.Size && l.written[before.First+slot].server.Addr == s.Addr {
			var err error
			if n, err = l.set.readConns(before.First + slot); err != nil {
				return err
			}
		}
		if err := l.set.writeConns(line, n); err != nil {
			return err
		}
		return l.writeUnread(line, s)
	case !s.Addr.IsValid():
		return nil // free: now or in retire
	case written && was.server == s && !was.uneven && l.waited:
		return nil // its next hop is followed by looked
	case written && was.server.Addr == s.Addr:
		return l.writeLine(line, s, false)
	default:
		// The slot has a new server (its rest is over).
		if written && was.server.Addr.IsValid() {
			if err := l.carry(l.set, line, carriedKey{v.ID, carriedGone}); err != nil {
				return err
			}
			if err := l.carryMoved(v.ID, slot); err != nil {
				return err
			}
		}
		if err := l.set.writeConns(line, 0); err != nil {
			return err
		}
		return l.writeLine(line, s, true)
	}
}

// fill writes the idle half.
func (l *LB) fill(p *tables.Plan, half uint32) error {
	if err := l.set.writeTables(half*l.set.capacity().TableEntries, p.Tables); err != nil {
		return err
	}
	for _, s := range p.Stretches {
		memory, err := l.set.mapEntries()
		if err != nil {
			return err
		}
		tables.WriteRows(memory[s.First:], s.Rows)
	}
	all := make([]bpf.VIP, bpf.VIPLines)
	for i, e := range p.Entries {
		all[p.At[i]] = e
	}
	// Those of a VIP that has them already change at once.
	for id, r := range p.Rates {
		if err := l.set.Maps[mapRates].Put(id, r); err != nil {
			return fmt.Errorf("rates of VIP %d: %w", id, err)
		}
	}
	if err := l.set.writeVIPs(half, all); err != nil {
		return err
	}
	if err := l.set.writeControl(unsafe.Offsetof(bpf.Control{}.AskRate), uint32(l.o.Limits.AskRate)); err != nil {
		return err
	}
	seed := unsafe.Offsetof(bpf.Control{}.VipSeed) + uintptr(half)*8
	return l.set.writeControl(seed, p.Seed)
}

// retire clears what was in force and is named no more. Counts of a line that
// moved follow it; those of a server that is gone go to its VIP's sum.
func (l *LB) retire(before inForce, p *tables.Plan) (err error) {
	// What was carried is cleared, whatever fails behind it: it would count twice.
	defer func() { err = errors.Join(err, l.flushLines()) }()
	planned := map[uint32]tables.VIP{}
	for _, v := range p.VIPs {
		planned[v.ID] = v
	}
	for id, r := range before.ranges {
		v, stays := planned[id]
		for slot := range r.Size {
			line := r.First + slot
			switch {
			case !stays:
				// Its counters went with the VIP.
			case v.Lines.Has(slot, r) && v.Server(slot).Addr.IsValid():
				continue // in use
			case !v.Lines.Has(slot, r) && v.Server(slot).Addr == l.written[line].server.Addr:
				if err := l.carry(l.set, line, carriedKey{id, slot}); err != nil {
					return err
				}
			case v.Lines.Has(slot, r) && !l.written[line].server.Addr.IsValid():
				continue // was free before
			default:
				if err := l.carry(l.set, line, carriedKey{id, carriedGone}); err != nil {
					return err
				}
				if err := l.carryMoved(id, slot); err != nil {
					return err
				}
			}
			if err := l.writeUnread(line, tables.Line{}); err != nil {
				return err
			}
		}
		if !stays {
			if err := l.dropCarried(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeLine tells a line its server, on every CPU, unless it says so already.
func (l *LB) writeLine(line uint32, s tables.Line, reset bool) error {
	was, image := l.written[line], l.image(s)
	if reset || s.Steers() && !was.server.Steers() {
		if err := l.prepareSteer(line, s); err != nil {
			return err
		}
	}
	if !reset && was.image == image && !was.uneven {
		was.server = s
		l.written[line] = was
		return nil
	}
	// A next hop that is being asked for does not take away the one that
	// works: after a restart, or when a route moves to a new router.
	if !reset && was.server.SameWay(s) && was.usable() && l.hops.Get(s.Addr).State == nexthop.Unresolved {
		if was.server == s && !was.uneven {
			return nil
		}
		image = was.image
		image.MacDst = image.MacDst&^(uint64(bpf.LineClosed|bpf.LineDown|bpf.LineSteered)<<56) | uint64(s.Flags)<<56
	}
	w := bpf.LineWrite{Index: line, Line: image}
	if reset {
		w.Reset = 1
	}
	if l.gather && !reset {
		l.gathered = append(l.gathered, lineRun{w, s})
		return nil
	}
	if err := l.runLine(w); err != nil {
		return err
	}
	l.written[line] = writtenLine{server: s, image: image}
	return nil
}

func (l *LB) runLine(w bpf.LineWrite) error {
	ret, err := l.set.Programs[progLineWrite].Run(&ebpf.RunOptions{Context: w})
	if err != nil {
		return fmt.Errorf("line %d: %w", w.Index, err)
	}
	if ret != 0 {
		return fmt.Errorf("line %d: program line_write returned %d", w.Index, ret)
	}
	return nil
}

// image is what a line holds for a server: the template of its outer header
// with the next hop that is known now.
func (l *LB) image(s tables.Line) bpf.Line {
	if !s.Addr.IsValid() {
		return bpf.Line{}
	}
	h := l.hops.Get(s.Addr)
	flags := uint64(s.Flags)
	if s.Addr.Is6() {
		flags |= bpf.LineIPV6
	}
	if !h.Usable() {
		flags |= bpf.LineUnresolved
	}
	return bpf.Line{
		MacDst:  macWord(h.MAC) | uint64(s.Forwarding)<<48 | flags<<56,
		MacSrc:  macWord(h.Source) | uint64(h.VLAN)<<48,
		Addr:    tables.Key{Addr: s.Addr}.Words(),
		Ifindex: uint32(h.Ifindex),
		Mtu:     uint16(min(max(h.MTU-overhead(s), 0), 65535)),
	}
}

func overhead(s tables.Line) int {
	return vip.ForwardingOf(uint8(s.Forwarding)).Overhead(s.Addr, s.Hops)
}

// macWord is a MAC as the low six bytes of a word in memory order.
func macWord(m [6]byte) uint64 {
	var b [8]byte
	copy(b[:], m[:])
	return binary.LittleEndian.Uint64(b[:])
}

// looked follows what the kernel's tables say now of this machine's own
// addresses and, when they changed, of the ways to servers.
func (l *LB) looked(changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return
	}
	if err := l.syncInputs(); err != nil {
		l.log.Error("which frames are this machine's is not known anew", "error", err)
	}
	if changed || l.unsynced {
		l.syncLines()
	}
}

// syncLines rewrites the lines whose next hop is another than what they say.
func (l *LB) syncLines() {
	l.unsynced = false
	for line, w := range l.written {
		if err := l.writeLine(line, w.server, false); err != nil {
			l.unsynced = true
			l.log.Error("write the new next hop", "server", w.server.Addr, "error", err)
		}
	}
}
