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
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/scheme/rates"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/wire"
)

// limited is a VIP of scheme cheetah-stateful with limits.
func limited(r *rand.Rand, width, connection, packets, opens, bits4 int) (*hostile, *model.VIP) {
	h, v := seatVIP(r, width)
	v.Steps = bpf.Rates{Connection: rates.Step(connection), Packets: rates.Step(packets), Opens: rates.Step(opens)}
	v.Steps.Mask4, v.Steps.Mask6 = rates.Masks(bits4, 56)
	for bit, n := range map[uint8]int{bpf.RateConnection: connection, bpf.RatePackets: packets, bpf.RateOpens: opens} {
		if n > 0 {
			v.Rates |= bit
		}
	}
	return h, v
}

// Few sources open connections and send, some too much: in every step the program and the
// model agree on what is over which limit, and on every bucket behind it.
func TestRatesAgreeWithModel(t *testing.T) {
	hits := map[string]int{}
	for seed := range soak.Seeds(t, 8) {
		r := rand.New(rand.NewPCG(seed, 3))
		h, v := limited(r, 4, 1+r.IntN(20), 1+r.IntN(200), 1+r.IntN(10), pick(r, 24, 28, 32))
		v.Epochs, v.OpenEpoch = 3, r.IntN(2)
		p := newPairOf(t, seed, h)
		to := netip.AddrPortFrom(v.Addr, v.Port)
		type conn struct {
			from netip.AddrPort
			seat uint32
		}
		var conns []conn
		for n := range 5000 {
			flags, options, from := uint8(wire.SYN), h.options(h.Uint32()), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(r.IntN(1 + n/50)), byte(r.IntN(40))}), uint16(1024+r.IntN(1<<15)))
			if len(conns) > 0 && r.IntN(3) > 0 {
				c := conns[max(0, len(conns)-1-r.IntN(3))]
				if flags, from = pick[uint8](r, wire.ACK, wire.ACK, wire.ACK, wire.ACK|wire.FIN), c.from; r.IntN(8) == 0 {
					c.seat = r.Uint32N(16)
				}
				e := uint32(r.IntN(2))
				options = wire.Timestamp(1, v.Layout.Stamp(v.Keys[e], e, c.from, v.Port, v.Layout.Join(r.Uint32N(4), c.seat), h.now))
			}
			got := p.step(wire.TCP{Src: from, Dst: to, Flags: flags, Options: options}.Frame())
			hits[got.Reason.String()]++
			if got.Seat != nil && got.Seat.Opened {
				conns = append(conns, conn{from, got.Seat.Number})
			}
			if r.IntN(6) == 0 {
				p.wait(r.Uint32N(pick[uint32](r, 4, 100, 3000)))
			}
			if n%500 == 0 {
				p.sameState()
			}
		}
		p.sameState()
		hits["lost"] += int(p.state.Counters(v.ID).RateLost)
	}
	t.Logf("%v", hits)
	for _, what := range []string{"drop_rate_connection", "drop_rate_source", "drop_rate_new", "forward_new", "known", "lost"} {
		if hits[what] == 0 {
			t.Errorf("no %s: the generator is too tame", what)
		}
	}
}

// onCPUs runs f on so many CPUs at once, each time on a thread that stays there.
func onCPUs(t *testing.T, cpus int, f func(cpu int) error) {
	t.Helper()
	if runtime.NumCPU() < cpus {
		t.Skipf("this machine has fewer than %d CPUs", cpus)
	}
	var all sync.WaitGroup
	errs := make([]error, cpus)
	for cpu := range cpus {
		all.Go(func() {
			runtime.LockOSThread() // it ends with the goroutine
			var one unix.CPUSet
			one.Set(cpu)
			if errs[cpu] = unix.SchedSetaffinity(0, &one); errs[cpu] == nil {
				errs[cpu] = f(cpu)
			}
		})
	}
	all.Wait()
	for cpu, err := range errs {
		if err != nil {
			t.Fatalf("CPU %d: %v", cpu, err)
		}
	}
}

// passes sends a frame, and says whether it went on; it fails where neither that nor a
// limit is why it did not.
func (c *seatClient) passes(frame []byte) (bool, error) {
	o := ebpf.RunOptions{Data: frame, DataOut: c.out[:cap(c.out)]}
	action, err := c.p.twin.set.Programs[progLB].Run(&o)
	c.out = o.DataOut
	if err == nil && action != actTX && action != actDrop {
		err = fmt.Errorf("action %d", action)
	}
	return action == actTX, err
}

// Two CPUs share what a source and a connection may send: of ten times as much, what
// passes in a moment is a second's, but for one packet a CPU; and so in each second.
func TestRatesOnTwoCPUs(t *testing.T) {
	const cpus, packets, perConnection, seconds = 2, 400, 100, 5
	h, v := limited(soak.Rand(t), 8, perConnection, packets, 0, 24)
	p := newPairOf(t, 1, h)
	first := &seatClient{p: p, v: v, out: make([]byte, 4096)}
	to := netip.AddrPortFrom(v.Addr, v.Port)
	from := netip.MustParseAddrPort("10.30.0.1:4000")
	seat, err := first.open(from)
	if err != nil || seat == 0 {
		t.Fatalf("seat %d: %v", seat, err)
	}
	frame := func(kind int) []byte {
		if kind == 0 { // of the connection
			return wire.TCP{Src: from, Dst: to, Flags: wire.ACK, Options: wire.Timestamp(1, v.Layout.Stamp(v.Keys[0], 0, from, v.Port, v.Layout.Join(1, seat), h.now))}.Frame()
		}
		other := netip.MustParseAddrPort("10.40.0.1:4000") // without a seat
		return wire.TCP{Src: other, Dst: to, Flags: wire.ACK, Options: wire.Timestamp(1, v.Layout.Stamp(v.Keys[0], 0, other, v.Port, v.Layout.Join(1, 0), h.now))}.Frame()
	}
	for kind, limit := range []int{perConnection, packets} {
		for second := range seconds {
			bytes := frame(kind)
			var passed [cpus]int
			onCPUs(t, cpus, func(cpu int) error {
				c := &seatClient{p: p, v: v, out: make([]byte, 4096)}
				for range limit * 5 {
					ok, err := c.passes(bytes)
					if err != nil {
						return err
					}
					if ok {
						passed[cpu]++
					}
				}
				return nil
			})
			if sum := passed[0] + passed[1]; sum < limit || sum > limit+cpus {
				t.Errorf("limit %d, second %d: %v packets passed", limit, second, passed)
			}
			p.wait(1000)
		}
	}
}

// SYNs from many prefixes, far more than there are buckets: none gets more through than
// its limit but those that are forgotten, the greatest sender is not, and a connection
// that is established goes on.
func TestRatesUnderFlood(t *testing.T) {
	prefixes, perSource := 30_000, 5
	if soak.On() {
		prefixes = 3_000_000
	}
	r := soak.Rand(t)
	h, v := limited(r, 8, 0, 0, perSource, 24)
	p := newPairOf(t, 1, h)
	c := &seatClient{p: p, v: v, out: make([]byte, 4096)}
	established := netip.MustParseAddrPort("10.30.0.1:4000")
	seat, err := c.open(established)
	if err != nil || seat == 0 {
		t.Fatalf("seat %d: %v", seat, err)
	}
	syn := func(a [4]byte) (bool, error) {
		return c.passes(wire.TCP{Src: netip.AddrPortFrom(netip.AddrFrom4(a), uint16(1024+r.IntN(60000))), Dst: netip.AddrPortFrom(v.Addr, v.Port), Flags: wire.SYN, Options: wire.SYNOptions(1460, 1)}.Frame())
	}
	greatest, sent, ms := 0, 0, 0
	for n := range prefixes {
		if ok, err := syn([4]byte{byte(20 + n>>16), byte(n >> 8), byte(n), 1}); err != nil || !ok {
			t.Fatalf("the first SYN of prefix %d: passed %t, %v", n, ok, err)
		}
		if n%3 == 0 {
			sent++
			ok, err := syn([4]byte{11, 0, 0, byte(n)})
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				greatest++
			}
		}
		if n%100 == 0 {
			if err := c.send(established, seat, wire.ACK); err != nil {
				t.Fatalf("of the connection that is established: %v", err)
			}
		}
		if n%40 == 0 {
			p.wait(1)
			ms++
		}
	}
	most := perSource + perSource*ms/1000 + 1
	t.Logf("%d SYNs of one prefix in %d ms among %d others: %d passed, at most %d should", sent, ms, prefixes, greatest, most)
	if greatest > most || greatest < perSource {
		t.Errorf("%d SYNs of the greatest sender passed", greatest)
	}
}
