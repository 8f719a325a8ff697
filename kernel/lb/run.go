package lb

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sort"
	"sync"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/tables"
)

// Run keeps what packets need right until ctx ends: the clock, the programs where
// they belong, the next hops, and asks. Without it packets go on, with what was known last.
func (l *LB) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, 3)
	for _, f := range []func(context.Context) error{
		func(ctx context.Context) error {
			// By one timer: at rest it is waking up that costs.
			looks := time.Duration(0)
			every(ctx, kernel.TendEvery, func() {
				looks++
				l.look(looks%(kernel.PinsEvery/kernel.TendEvery) == 0)
				if looks%(clockRefresh/kernel.TendEvery) == 0 {
					l.tickClock()
				}
				if looks%(seatSweep/kernel.TendEvery) == 0 {
					l.sweepSeats()
				}
			})
			return nil
		},
		l.ServeAsks,
		func(ctx context.Context) error { return l.hops.Run(ctx, l.looked) },
	} {
		wg.Go(func() {
			errs <- f(ctx)
			cancel() // one fails: all end
		})
	}
	wg.Wait()
	return errors.Join(<-errs, <-errs, <-errs)
}

func (l *LB) tickClock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refreshClock(); err != nil {
		l.log.Error("refresh the clock", "error", err)
	}
}

// every calls f so often until ctx ends.
func every(ctx context.Context, d time.Duration, f func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}

// watchWritten follows the servers of adopted lines, without waiting.
func (l *LB) watchWritten() {
	servers := map[netip.Addr]bool{}
	for _, w := range l.written {
		if w.server.Addr.IsValid() {
			servers[w.server.Addr] = true
		}
	}
	l.hops.Watch(servers, 0)
}

// Status is how a balancer stands.
type Status struct {
	PinDir     string
	Adopted    bool   // Open found it pinned and running
	Pending    bool   // a new set of maps waits for the next assignment
	HZ         uint32 // the kernel's, as measured
	Interfaces []InterfaceStatus
	Limits     []Limit
	Seats      seats.Stats           // as last swept
	Astray     []string              // what is not as it should be, and what to do
	NextHops   []nexthop.Hop         // by server
	Buckets    []tables.BucketStatus // by VIP, those of scheme beamer in force
}

// Took is how long the steps of the last Apply took until packets went by the assignment,
// in their order. Packets go on meanwhile.
type Took struct {
	Since time.Time     // when packets went by it
	Plan  time.Duration // its tables are computed
	Ways  time.Duration // those to its servers are looked up
	Lines time.Duration // server lines that are new to it are written
	Fill  time.Duration // the idle half of the tables is, and comes into force
}

// InterfaceStatus is one interface and how the programs sit on it.
type InterfaceStatus struct {
	Name   string
	Index  int
	Mode   string // of XDP: native, generic or, where the program is not on it, off
	Egress string // of health checks and their answers: tcx or off
	MTU    int
}

// Limit is how full a map is.
type Limit struct {
	Name        string // vip_lines, server_lines, table_entries, flows, seats
	Used, Limit uint64
}

// Took is of the last Apply that was in force.
func (l *LB) Took() Took {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.took
}

// Status reads how the balancer stands.
func (l *LB) Status() Status {
	flows := l.usedFlows()
	l.mu.Lock()
	s := Status{PinDir: l.PinDir(), Adopted: l.adopted, Pending: l.old != nil && !l.attached, HZ: uint32(l.jiffies.HZ), Astray: l.astray.List()}
	if l.set != nil {
		s.Limits, s.Seats = l.limits(flows.Used), l.seatStats
		s.Buckets = l.chains.Status(l.moment())
	}
	for _, i := range l.ifaces {
		s.Interfaces = append(s.Interfaces, l.interfaceStatus(i))
	}
	l.mu.Unlock()
	s.NextHops = l.hops.List()
	sort.Slice(s.NextHops, func(i, j int) bool { return s.NextHops[i].Server.Less(s.NextHops[j].Server) })
	return s
}

// interfaceStatus is one interface; the caller holds mu.
func (l *LB) interfaceStatus(i net.Interface) InterfaceStatus {
	s := InterfaceStatus{Name: i.Name, Index: i.Index, Mode: kernel.Off, Egress: kernel.Off}
	dev, err := l.hops.Link(i.Index)
	if err != nil {
		return s // it is gone
	}
	s.MTU = dev.Attrs().MTU
	if !l.attached {
		if l.old != nil { // in force as a process before left it
			s.Mode = kernel.XDPMode(dev)
		}
		return s
	}
	there := map[string]bool{}
	for _, p := range placesOn([]net.Interface{i}) {
		there[p.kind] = l.there(p)
	}
	if there[linkXDP] {
		s.Mode = kernel.XDPMode(dev)
	}
	if there[linkAnswers] && there[linkChecks] {
		s.Egress = "tcx"
	}
	return s
}

func (l *LB) limits(flows uint64) []Limit {
	c := l.set.capacity()
	lines := uint64(0)
	for _, r := range l.force.ranges {
		lines += uint64(r.Size)
	}
	return []Limit{
		{"vip_lines", uint64(l.force.entries), bpf.VIPLines},
		{"server_lines", lines, uint64(c.Lines)},
		{"table_entries", uint64(l.force.tables), uint64(c.TableEntries)},
		{"flows", flows, uint64(l.set.Maps[mapFlows].MaxEntries()) * jet.Ways},
		{"seats", l.seatStats.New + l.seatStats.Live + l.seatStats.Closing, uint64(l.set.Maps[mapSeats].MaxEntries())},
	}
}

// Open says that the consistent hash gives a VIP's slot new connections now:
// its server is active and up, and does not wait for a warm-up's end.
func (l *LB) Open(vipID uint32, slot uint16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, found := l.force.ranges[vipID]
	if !found || uint32(slot) >= r.Size {
		return false
	}
	w := l.written[r.First+uint32(slot)]
	return w.server.Addr.IsValid() && tables.LineWord(w.image.MacDst).Flags()&bpf.LineClosed == 0
}

// Has says that packets go by a VIP, and whether an entry counts more than a cookie there.
func (l *LB) Has(vipID uint32) (here, entriesFirst bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, here = l.force.ranges[vipID]
	return here, l.force.first[vipID]
}

// Line is the server line of a VIP's slot, which the marks of health checks
// name (SO_MARK 0xFA100000 | line). ok is false where no server is there.
func (l *LB) Line(vipID uint32, slot uint16) (line uint32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, found := l.force.ranges[vipID]
	line = r.First + uint32(slot)
	return line, found && uint32(slot) < r.Size && l.written[line].server.Addr.IsValid()
}
