package lb

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// What a client can do by changing its own cookie (Cheetah §2.3, "Resilience
// to clogging"), measured through the program in the kernel. Two VIPs of 512
// slots, all of them servers, both epochs live: every cookie names some slot,
// which the outer destination tells.

const opaqueBits = 10 // the narrowest cookie, the easiest to guess

type opaque struct {
	*pair
	vip, other *model.VIP
}

func newOpaque(t *testing.T, seed uint64) *opaque {
	l := cheetah.Layout{Bits: opaqueBits}
	r := rand.New(rand.NewPCG(seed, 0))
	o := &opaque{}
	tables := &model.Tables{Services: map[model.Key]*model.VIP{}, Lines: make([]model.Line, 1+2*l.Slots()),
		Source4: netip.MustParsePrefix("192.168.64.0/20"), Source6: netip.MustParsePrefix("fd00:7::/64")}
	for id := uint32(1); id <= 2; id++ {
		v := &model.VIP{ID: id, Addr: netip.AddrFrom4([4]byte{10, 1, 0, byte(id)}), Port: 80, Proto: wire.ProtoTCP,
			FirstLine: 1 + (id-1)*uint32(l.Slots()), Slots: uint32(l.Slots()), Scheme: vip.Cheetah, Policy: "rr", Epochs: 3, Layout: l,
			Keys: [2]hash.Key{{r.Uint64(), r.Uint64()}, {r.Uint64(), r.Uint64()}}}
		tables.Services[model.Key{Addr: v.Addr, Port: v.Port, Proto: v.Proto}] = v
		for s := range v.Slots {
			tables.Lines[v.FirstLine+s] = model.Line{Forwarding: vip.IPIP, MACDst: wire.MAC{2}, MACSrc: wire.MAC{4},
				Addr: netip.AddrFrom4([4]byte{10, byte(2 + id), byte(s >> 8), byte(s)}), Ifindex: 1, MTU: 1480}
		}
		o.vip, o.other = v, o.vip
	}
	o.pair = newPairOf(t, seed, &hostile{Rand: r, tables: tables, now: r.Uint32()})
	return o
}

// reach is the slot that a packet with this TSecr reaches by the program.
func (o *opaque) reach(frame []byte, ecr uint32) uint32 {
	at := len(frame) - 4 // a bare ACK ends with its TSecr
	binary.BigEndian.PutUint32(frame[at:], ecr)
	out := make([]byte, len(frame)+64)
	run := &ebpf.RunOptions{Data: frame, DataOut: out}
	action, err := o.twin.set.Programs[progLB].Run(run)
	if err != nil || action != actTX {
		o.t.Fatalf("seed %d: action %d, %v", o.seed, action, err)
	}
	dst := run.DataOut[14+16 : 14+20]
	if dst[0] != 10 || dst[1] != byte(2+o.vip.ID) {
		o.t.Fatalf("seed %d: a packet to %v reached %v, a server of another VIP", o.seed, o.vip.Addr, dst)
	}
	return uint32(dst[2])<<8 | uint32(dst[3])
}

func (o *opaque) client() (netip.AddrPort, []byte) {
	c := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(100 + o.h.IntN(100)), byte(o.h.Uint32()), byte(o.h.Uint32())}), uint16(o.h.Uint32()))
	return c, wire.TCP{Src: c, Dst: netip.AddrPortFrom(o.vip.Addr, 80), Flags: wire.ACK, Options: wire.Timestamp(1, 0)}.Frame()
}

// Whatever bits of its cookie a client flips, it reaches a server that it
// chose no more often than chance, and never another VIP's.
func TestFlippedCookieReachesNoChosenServer(t *testing.T) {
	const seed, own, trials = 31, 7, 3000
	o := newOpaque(t, seed)
	l := o.vip.Layout
	n := l.Slots()
	masks := []uint32{3, 5, 0x1ff, 0x155, 0x2aa, 0x3ff, 0x201}
	for b := range opaqueBits {
		masks = append(masks, 1<<b)
	}
	worst, total := 0, 0
	for _, mask := range masks {
		hits := make([]int, n)
		for range trials {
			c, frame := o.client()
			ts := l.Stamp(o.vip.Keys[0], 0, c, 80, own, o.h.now-o.h.Uint32N(60000))
			if total%97 == 0 {
				if s := o.reach(frame, ts); s != own {
					t.Fatalf("seed %d: the untouched cookie reached slot %d, want %d", seed, s, own)
				}
			}
			hits[o.reach(frame, ts^mask<<l.Shift())]++
			total++
		}
		for s, c := range hits {
			if c > worst {
				worst = c
			}
			// Chance is 3000/512 = 5.9. A Poisson count of that mean exceeds
			// 26 once in 4 * 10^9; there are 8,704 of them here.
			if c > 26 {
				t.Errorf("seed %d: flipping %#x reached slot %d %d times of %d, chance is %.1f", seed, mask, s, c, trials, float64(trials)/float64(n))
			}
		}
	}
	t.Logf("seed %d: %d packets, a chosen server at most %.1f times as often as chance, never another VIP", seed, total, float64(worst*n)/trials)
}

// The live hash is not linear: what a client learns from its own connections
// (the slot that a cookie reaches from addresses a, b and c) does not tell
// the slot from a^b^c. With CRC or Toeplitz it always does.
func TestLiveHashIsNotLinear(t *testing.T) {
	const seed, trials = 32, 3000
	o := newOpaque(t, seed)
	predicted := 0
	for range trials {
		x, y, ecr := o.h.Uint32N(1<<16), o.h.Uint32N(1<<16), o.h.Uint32()
		slot := func(low uint32) uint32 {
			c := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(low >> 8), byte(low)}), 5000)
			return o.reach(wire.TCP{Src: c, Dst: netip.AddrPortFrom(o.vip.Addr, 80), Flags: wire.ACK, Options: wire.Timestamp(1, 0)}.Frame(), ecr)
		}
		if x != y && x != 0 && y != 0 && slot(0)^slot(x)^slot(y) == slot(x^y) {
			predicted++
		}
	}
	// Chance is 5.9, as above.
	if predicted > 26 {
		t.Errorf("seed %d: %d of %d slots predicted, chance is %.1f", seed, predicted, trials, trials/512.0)
	}
	t.Logf("seed %d: %d of %d predicted, chance is %.1f", seed, predicted, trials, trials/512.0)
}
