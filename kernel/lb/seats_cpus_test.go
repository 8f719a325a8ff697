package lb

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// seatVIP is a balancer's tables with one VIP of scheme cheetah-stateful.
func seatVIP(r *rand.Rand, width int) (*hostile, *model.VIP) {
	h := &hostile{Rand: r, now: r.Uint32(), seats: map[netip.AddrPort]uint32{}}
	v := &model.VIP{ID: 1, Addr: netip.MustParseAddr("10.1.0.1"), Port: 80, Proto: wire.ProtoTCP, FirstLine: 1, Slots: 4, Epochs: 1, Policy: policy.RR,
		Keys: [2]hash.Key{{r.Uint64(), r.Uint64()}, {r.Uint64(), r.Uint64()}}, Scheme: vip.CheetahStateful, Layout: cheetah.Layout{Bits: 15, SeatBits: width}}
	h.tables = &model.Tables{Services: map[model.Key]*model.VIP{{Addr: v.Addr, Port: 80, Proto: v.Proto}: v}, Addresses: map[netip.Addr]*model.Address{},
		Fragments: map[model.Key]*model.VIP{}, Lines: make([]model.Line, hostileLines), Source4: netip.MustParsePrefix("192.168.64.0/20"),
		Source6: netip.MustParsePrefix("fd00:7::/64"), AskRate: 1, AskKey: hostileAskKey, Ingress: 1}
	var takers []policy.Member
	for s := range v.Slots {
		h.tables.Lines[v.FirstLine+s] = model.Line{Forwarding: vip.IPIP, MACDst: wire.MAC{2, 1}, MACSrc: wire.MAC{2, 2}, Addr: netip.AddrFrom4([4]byte{10, 2, 0, byte(s)}), Ifindex: 1, MTU: 9000}
		takers = append(takers, policy.Member{Slot: uint16(s), Weight: 1, Name: fmt.Sprint(s)})
	}
	v.NewTable = policy.Table(v.Policy, takers)
	return h, v
}

// seatClient opens, uses and closes connections by test runs.
type seatClient struct {
	p   *pair
	v   *model.VIP
	out []byte
}

func (c *seatClient) run(frame []byte) (uint32, error) {
	o := ebpf.RunOptions{Data: frame, DataOut: c.out[:cap(c.out)]}
	action, err := c.p.twin.set.Programs[progLB].Run(&o)
	c.out = o.DataOut
	if err == nil && action != actTX {
		err = fmt.Errorf("action %d", action)
	}
	return action, err
}

// open is a connection's SYN: the seat that its server is told.
func (c *seatClient) open(from netip.AddrPort) (seat uint32, err error) {
	to := netip.AddrPortFrom(c.v.Addr, c.v.Port)
	if _, err = c.run(wire.TCP{Src: from, Dst: to, Flags: wire.SYN, Options: wire.SYNOptions(1460, 1)}.Frame()); err != nil {
		return 0, err
	}
	in, _, err := wire.Decapsulate(wire.Parse(c.out).Packet())
	if err != nil {
		return 0, err
	}
	p := wire.ParsePacket(in)
	if p.Timestamp == nil || len(p.ChecksumErrors()) > 0 {
		return 0, fmt.Errorf("what went to the server has no timestamp, or wrong checksums: %+v", p)
	}
	return p.Timestamp.Ecr &^ (1 << 31), nil
}

// send is a segment of the connection that has the seat.
func (c *seatClient) send(from netip.AddrPort, seat uint32, flags uint8) error {
	l := c.v.Layout
	_, err := c.run(wire.TCP{Src: from, Dst: netip.AddrPortFrom(c.v.Addr, c.v.Port), Flags: flags,
		Options: wire.Timestamp(1, l.Stamp(c.v.Keys[0], 0, from, c.v.Port, l.Join(1, seat), c.p.h.now))}.Frame())
	return err
}

func seatFrom(cpu, n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(20 + cpu), byte(n >> 16), byte(n >> 8)}), uint16(1024+n&0xff))
}

// Two CPUs open, use and close connections in the same small partitions, and count
// on one that both have: no seat is given twice, every count is right, none is left.
func TestSeatsOnTwoCPUs(t *testing.T) {
	const rounds, held = 6000, 250
	if runtime.NumCPU() < 2 {
		t.Skip("this machine has one CPU")
	}
	h, v := seatVIP(soak.Rand(t), 4)
	p := newPairOf(t, 1, h)
	table, err := p.twin.set.seatTable()
	if err != nil {
		t.Fatal(err)
	}
	shared := netip.MustParseAddrPort("10.30.0.1:4000")
	first := &seatClient{p: p, v: v, out: make([]byte, 4096)}
	sharedSeat, err := first.open(shared)
	if err != nil || sharedSeat == 0 {
		t.Fatalf("seat %d: %v", sharedSeat, err)
	}
	type connection struct {
		from netip.AddrPort
		seat uint32
	}
	var both sync.WaitGroup
	var errs [2]error
	var lives [2][]connection
	for cpu := range 2 {
		both.Go(func() {
			// A thread of its own, which ends with the goroutine.
			runtime.LockOSThread()
			var one unix.CPUSet
			one.Set(cpu)
			if errs[cpu] = unix.SchedSetaffinity(0, &one); errs[cpu] != nil {
				return
			}
			c, r := &seatClient{p: p, v: v, out: make([]byte, 4096)}, rand.New(rand.NewPCG(7, uint64(cpu)))
			var live []connection
			for n := range rounds {
				from := seatFrom(cpu, n)
				seat, err := c.open(from)
				if err == nil && seat > 0 {
					err = c.send(from, seat, wire.ACK)
					live = append(live, connection{from, seat})
				}
				if err == nil {
					err = c.send(shared, sharedSeat, wire.ACK)
				}
				if err == nil && len(live) > held {
					i := r.IntN(len(live))
					err = c.send(live[i].from, live[i].seat, wire.ACK|wire.FIN)
					live[i] = live[len(live)-1]
					live = live[:len(live)-1]
				}
				if err != nil {
					errs[cpu] = fmt.Errorf("round %d: %w", n, err)
					return
				}
			}
			lives[cpu] = live
		})
	}
	both.Wait()
	for cpu, err := range errs {
		if err != nil {
			t.Fatalf("CPU %d: %v", cpu, err)
		}
	}
	index := func(from netip.AddrPort, seat uint32) (uint32, uint64) {
		x := hash.Tuple(v.Keys[0], from, v.Port)
		return table.First(x, v.Layout.SeatBits) + seat, x
	}
	taken := map[uint32]netip.AddrPort{}
	for _, live := range lives {
		for _, c := range live {
			i, x := index(c.from, c.seat)
			if w := seats.Word(table.Seats[i].Word); w.Check() != uint32(x>>32) || w.State() != bpf.SeatLive {
				t.Fatalf("the seat of %v, %d, has %v of another's", c.from, i, w.State())
			}
			if other, ok := taken[i]; ok {
				t.Fatalf("%v and %v have one seat", c.from, other)
			}
			taken[i] = c.from
		}
	}
	i, _ := index(shared, sharedSeat)
	if n := table.Seats[i].Count >> 40; n != 1+2*rounds {
		t.Errorf("%d packets counted of %d", n, 1+2*rounds)
	}
	t.Logf("%d connections sit", len(taken)+1)
	for _, live := range lives {
		for _, c := range live {
			if err := first.send(c.from, c.seat, wire.RST); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := first.send(shared, sharedSeat, wire.ACK|wire.FIN); err != nil {
		t.Fatal(err)
	}
	for at, w := range table.Taken {
		if w != 0 {
			t.Errorf("seats left from %d on: %064b", at*64, w)
		}
	}
}

// Millions of connections open and close through the program, some of which never
// say a word, or go without a FIN: in the end no seat is left.
func TestSeatsLeakNothing(t *testing.T) {
	connections := 30_000
	if soak.On() {
		connections = 20_000_000
	}
	r := soak.Rand(t)
	h, v := seatVIP(r, 8)
	p := newPairOf(t, 1, h)
	table, err := p.twin.set.seatTable()
	if err != nil {
		t.Fatal(err)
	}
	c := &seatClient{p: p, v: v, out: make([]byte, 4096)}
	full, silent := 0, 0
	rule := func(*bpf.SeatAbout, uint32) (uint32, bool) { return 128, true }
	for n := range connections {
		from := seatFrom(0, n)
		seat, err := c.open(from)
		if seat == 0 {
			full++
		}
		if kind := r.IntN(100); err == nil && kind > 0 {
			if err = c.send(from, seat, wire.ACK); err == nil && kind > 1 {
				err = c.send(from, seat, wire.ACK|wire.FIN)
			}
		} else {
			silent++
		}
		if err != nil {
			t.Fatalf("connection %d: %v", n, err)
		}
		if n%2000 == 0 {
			p.wait(20_000)
			table.Sweep(0, diffSeats, seats.Unit(h.now), rule)
		}
	}
	p.wait(300_000)
	left := table.Sweep(0, diffSeats, seats.Unit(h.now), rule)
	t.Logf("%d connections, %d found their partition full, %d never went on", connections, full, silent)
	if left.New+left.Live+left.Closing > 0 || full > connections/20 {
		t.Errorf("left %+v", left)
	}
	for at, w := range table.Taken {
		if w != 0 {
			t.Errorf("seats left from %d on: %064b", at*64, w)
		}
	}
}
