package lb

import (
	"fmt"
	"math/bits"
	"net/netip"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/tables"
)

// sizeSeats gives a program's maps so many seats.
func sizeSeats(spec *ebpf.CollectionSpec, n uint32) {
	spec.Maps[mapSeats].MaxEntries, spec.Maps[mapSeatsAbout].MaxEntries = n, n
	spec.Maps[mapSeatsTaken].MaxEntries = max(n/64, 1)
}

// seatCount is how many seats there are for so many connections.
func seatCount(connections int) uint32 { return uint32(seats.Size(connections)) }

// seatTable is the set's seats, in the memory that packets write; mapped until letSeatsGo.
func (o *objects) seatTable() (*seats.Table, error) {
	if o.seats != nil {
		return o.seats, nil
	}
	t := &seats.Table{}
	var err error
	if t.Seats, err = mapArray[bpf.Seat](o, mapSeats); err != nil {
		return nil, err
	}
	if t.Taken, err = mapArray[uint64](o, mapSeatsTaken); err != nil {
		return nil, err
	}
	if t.About, err = mapArray[bpf.SeatAbout](o, mapSeatsAbout); err != nil {
		return nil, err
	}
	o.seats = t
	return t, nil
}

// letSeatsGo takes the seats out of this process's memory, of which they are the most by far.
func (o *objects) letSeatsGo() {
	for _, b := range o.seated {
		_ = unix.Munmap(b) // it is a mapping of ours
	}
	o.seated, o.seats = nil, nil
}

// mapArray maps one of the seats' arrays into memory.
func mapArray[V any](o *objects, name string) ([]V, error) {
	m := o.Maps[name]
	if m == nil {
		return nil, fmt.Errorf("no map %s is pinned", name)
	}
	n := int(m.MaxEntries())
	size := pages(n * int(unsafe.Sizeof(*new(V))))
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: map %d bytes of it into memory: %w", name, size, err)
	}
	o.seated = append(o.seated, b)
	return unsafe.Slice((*V)(unsafe.Pointer(&b[0])), n), nil
}

const (
	// seatSweep is how often seats are freed whose connections are silent or gone, and
	// counts moved before they wrap.
	seatSweep = 2 * time.Second
	// sweptSeats is how many one hold of the lock sweeps: some milliseconds.
	sweptSeats = 1 << 16
)

// sweepSeats frees what nobody sits on any more.
func (l *LB) sweepSeats() {
	var sum seats.Stats
	for first, more := uint32(0), true; more; first += sweptSeats {
		var err error
		if more, err = l.sweepSeatsFrom(first, &sum); err != nil {
			l.log.Error("free the seats of connections that are over; trying again", "error", err)
			return
		}
	}
}

func (l *LB) sweepSeatsFrom(first uint32, sum *seats.Stats) (more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.running()
	if set == nil || l.nobodySits() {
		return false, nil
	}
	t, err := set.seatTable()
	if err != nil {
		return false, err
	}
	unit, err := l.unit(set)
	if err != nil {
		return false, err
	}
	n := uint32(len(t.Seats))
	s := t.Sweep(first, min(first+sweptSeats, n), unit, l.sits)
	sum.New, sum.Live, sum.Closing, sum.Freed = sum.New+s.New, sum.Live+s.Live, sum.Closing+s.Closing, sum.Freed+s.Freed
	if first+sweptSeats < n {
		return true, nil
	}
	sum.Freed = 0
	l.seatStats, l.seatsSwept = *sum, true
	if l.nobodySits() {
		set.letSeatsGo()
	}
	return false, nil
}

// nobodySits: no VIP's connections take seats, and none is left of before.
func (l *LB) nobodySits() bool {
	return len(l.force.seats) == 0 && l.seatStats == (seats.Stats{}) && l.seatsSwept
}

// sits is the rule of the assignment in force: how long a connection may be silent
// follows from its cookie, and it ends with its server.
func (l *LB) sits(about *bpf.SeatAbout, slot uint32) (idle uint32, stays bool) {
	idle, stays = l.force.seats[about.VipId]
	if stays && slot != seats.Any {
		stays = l.serverAt(about.VipId, slot).IsValid()
	}
	return idle, stays
}

// serverAt is the server at a slot of a VIP in force; invalid: there is none.
func (l *LB) serverAt(vip, slot uint32) (a netip.Addr) {
	if r := l.force.ranges[vip]; slot < r.Size {
		a = l.written[r.First+slot].server.Addr
	}
	return a
}

// seatIdle says for which VIPs of a half packets take seats, and after how many units
// of silence their cookies are worth nothing.
func seatIdle(entries []bpf.VIP) map[uint32]uint32 {
	idle := map[uint32]uint32{}
	for _, e := range entries {
		if e.SeatBits&15 > 0 && e.Tier != uint8(bpf.TierOne) {
			idle[e.Id] = 1 << (max(e.Shift, 10) - 10)
		}
	}
	return idle
}

// Connection is one that sits somewhere.
type Connection struct {
	VIP    uint32 // id
	Client netip.AddrPort
	Port   uint16 // the VIP's
	Seat   uint32
	Slot   uint32 // seats.Any: it has not shown its cookie yet
	Server netip.Addr
	// Of one that was moved: the slot that its cookie says, and the server there.
	Moved          bool
	Home           uint32
	HomeServer     netip.Addr
	State          bpf.SeatState
	Age, Idle      time.Duration // since it opened, since its last packet
	Packets, Bytes uint64
}

// Connections calls f with all that sit, until it returns false. A connection's Idle
// is good to a second.
func (l *LB) Connections(f func(*Connection) bool) error {
	more := true
	for first := uint32(0); more; first += sweptSeats {
		var page []Connection
		var err error
		if page, more, err = l.connectionsFrom(first); err != nil {
			return err
		}
		for i := range page {
			if !f(&page[i]) {
				return nil
			}
		}
	}
	return nil
}

func (l *LB) connectionsFrom(first uint32) (page []Connection, more bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.running()
	if set == nil {
		return nil, false, errClosed
	}
	if l.nobodySits() {
		return nil, false, nil
	}
	t, err := set.seatTable()
	if err != nil {
		return nil, false, err
	}
	now, err := l.sharedNow(set)
	if err != nil {
		return nil, false, err
	}
	n := uint32(len(t.Seats))
	t.Each(first, min(first+sweptSeats, n), func(e seats.Entry) bool {
		page = append(page, l.connection(&e, now))
		return true
	})
	return page, first+sweptSeats < n, nil
}

func (l *LB) connection(e *seats.Entry, now uint32) Connection {
	c := Connection{VIP: e.About.VipId, Seat: e.Index, Slot: e.Word.Slot(), State: e.Word.State(),
		Client: netip.AddrPortFrom(tables.AddrOf(e.About.Addr), bits.ReverseBytes16(e.About.Sport)), Port: bits.ReverseBytes16(e.About.Dport),
		Age:  time.Duration(now-e.About.OpenedMs) * time.Millisecond,
		Idle: time.Duration(e.Word.Age(seats.Unit(now))) * 1024 * time.Millisecond, Packets: e.Packets, Bytes: e.Bytes}
	c.Server = l.serverAt(c.VIP, c.Slot)
	if c.Moved = e.Word.Moved(); c.Moved {
		c.Home = e.About.Home
		c.HomeServer = l.serverAt(c.VIP, c.Home)
	}
	return c
}
