package bench

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/seats"
)

const (
	seatCount = (flowCount*4/3 + 1<<seats.MaxBits - 1) >> seats.MaxBits << seats.MaxBits // a third more, as docs/stateful.md says
	seatBits  = 8
)

// statefulCookie is the cookie of VIP stateful, which has as many slots as one names.
var statefulCookie = cheetah.Layout{Bits: 15, SeatBits: seatBits}

// seatState is what connections' seats are like when a case begins.
type seatState int

const (
	seatsAny     seatState = iota
	seatsLive              // every flow of set seated sits and has shown its cookie
	seatsFree              // nobody sits
	seatsClosing           // seatsLive, of which the case makes something else
)

// sit gives a flow of set seated a seat.
func (b *balancer) sit(h uint64) (seat uint32, err error) {
	if b.seats == nil {
		b.seats = seats.New(seatCount)
	}
	p := seats.Packet{Hash: [2]uint64{h, h}, Unit: seats.Unit(sharedNow), Len: 60}
	if seat = b.seats.Open(p, seatBits, 0, bpf.SeatAbout{}); seat == 0 {
		return 0, fmt.Errorf("a partition of seats is full")
	}
	return seat, nil
}

// shows ends what sit began: the flow shows its cookie.
func (b *balancer) shows(h uint64, slot, seat uint32) {
	p := seats.Packet{Hash: [2]uint64{h, h}, Unit: seats.Unit(sharedNow), Len: 60}
	b.seats.Touch(p, seatBits, 0, -1, slot, seat)
}

// putSeats makes the seats what a case needs them to be, unless they are.
func (b *balancer) putSeats(s seatState) error {
	if s == seatsAny || s == seatsLive && b.sitting == seatsLive {
		return nil
	}
	from := b.seats
	if s == seatsFree {
		from = b.noSeats
	}
	b.sitting = s
	m, err := b.o.Seats.Memory()
	if err == nil {
		_, err = m.WriteAt(octets(from.Seats), 0)
	}
	if err != nil {
		return err
	}
	if m, err = b.o.SeatsTaken.Memory(); err == nil {
		_, err = m.WriteAt(octets(from.Taken), 0)
	}
	return err
}

func octets[V any](all []V) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), len(all)*int(unsafe.Sizeof(all[0])))
}

var salts atomic.Uint32

// salt is another each time.
func salt() uint32 { return salts.Add(1) }
