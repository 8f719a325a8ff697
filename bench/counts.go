package bench

import (
	"fmt"
	"math"

	"github.com/fairlead/fairlead/bpf"
)

// counts is what the program counted, of all VIPs and CPUs.
type counts struct {
	reasons [bpf.ReasonCount]uint64
	hits    uint64 // entries of the flow table that were found
	made    uint64 // entries that were made
	taken   uint64 // seats that were taken
	wrong   uint64 // seats that were not their connections'
}

func (b *balancer) count() (n counts, err error) {
	for i := range n.reasons {
		var c []bpf.Count
		if err := b.o.Reasons.Lookup(uint32(i), &c); err != nil {
			return n, fmt.Errorf("read the reasons: %w", err)
		}
		for _, x := range c {
			n.reasons[i] += x.Packets
		}
	}
	for _, id := range b.ids {
		var c []bpf.VIPCPU
		if err := b.o.VipCpu.Lookup(id, &c); err != nil {
			return n, fmt.Errorf("read a VIP's counters: %w", err)
		}
		for _, x := range c {
			n.hits += x.FlowHits
			n.made += x.Tracked
			n.taken += x.Seated
			n.wrong += x.SeatWrong
		}
	}
	return n, nil
}

func (n counts) since(before counts) counts {
	for i := range n.reasons {
		n.reasons[i] -= before.reasons[i]
	}
	n.hits -= before.hits
	n.made -= before.made
	n.taken -= before.taken
	n.wrong -= before.wrong
	return n
}

// check says what the packets of a case were that it does not say they are.
func (n counts) check(c lbCase, packets int) error {
	for i, x := range n.reasons {
		if bpf.Reason(i) != c.reason && x != 0 {
			return fmt.Errorf("%d packets were counted under reason %d, not %d: this measures something else", x, i, c.reason)
		}
	}
	packets -= packets % packetsPerRun
	for _, s := range []struct {
		what string
		n    uint64
		want share
	}{{"found an entry in the flow table", n.hits, c.hits}, {"made an entry in the flow table", n.made, c.made},
		{"took a seat", n.taken, c.taken}, {"named a seat that is not theirs", n.wrong, share{}}} {
		// Five standard deviations of so few packets; none about 0 and 1.
		slack := func(p float64) float64 { return 5 * math.Sqrt(p*(1-p)/float64(packets)) }
		got := float64(s.n) / float64(packets)
		if got < s.want.least-slack(s.want.least) || got > s.want.most+slack(s.want.most) {
			return fmt.Errorf("%.4f of the packets %s, want %g to %g: this measures something else", got, s.what, s.want.least, s.want.most)
		}
	}
	return nil
}
