package router

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
)

// Counters are all that the program counts, since its maps were made; hops
// since they came.
type Counters struct {
	// Packets by how their hop was chosen, of hops that are gone, too.
	Ways Ways
	// Bytes of these packets, from the IP header on.
	Bytes uint64
	// Hops that are there, in no order.
	Hops []HopCounters
	// Passed are packets that were left to the kernel, by reason, all reasons.
	Passed []kernel.ReasonCount
}

// Ways are forwarded packets by how their hop was chosen (pathsel.How).
type Ways struct {
	Selected uint64 // the digit named a hop of the group
	Gone     uint64 // it named a port of this router that is none of the group's: hashed
	Hashed   uint64 // it named no port, or there was none
	Single   uint64 // there was nothing to choose
}

// Total is their sum.
func (w Ways) Total() uint64 { return w.Selected + w.Gone + w.Hashed + w.Single }

// HopCounters are those of one hop.
type HopCounters struct {
	ID    HopID
	Ways  Ways
	Bytes uint64
}

// Counters reads all counters.
func (p *Plane) Counters() (Counters, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.set == nil {
		return Counters{}, errClosed
	}
	var c Counters
	total, err := p.set.carried()
	if err != nil {
		return c, err
	}
	for id, index := range p.state.hops {
		n, err := p.set.hopCount(index)
		if err != nil {
			return c, err
		}
		add(&total, n)
		c.Hops = append(c.Hops, HopCounters{ID: id, Ways: ways(n), Bytes: n.Bytes})
	}
	c.Ways, c.Bytes = ways(total), total.Bytes
	c.Passed, err = kernel.ReadReasons(p.set.Maps[bpf.RouterMapReasons], reasonNames)
	return c, err
}

func ways(n bpf.HopCount) Ways {
	return Ways{Selected: n.Packets[bpf.HowSelected], Gone: n.Packets[bpf.HowGone],
		Hashed: n.Packets[bpf.HowHashed], Single: n.Packets[bpf.HowSingle]}
}

func add(to *bpf.HopCount, n bpf.HopCount) {
	for i, x := range n.Packets {
		to.Packets[i] += x
	}
	to.Bytes += n.Bytes
}

// hopCount sums a hop's counters over the CPUs.
func (s *set) hopCount(index uint32) (n bpf.HopCount, err error) {
	var cpus []bpf.HopCount
	if err := s.Maps[bpf.RouterMapHopCounts].Lookup(index, &cpus); err != nil {
		return n, fmt.Errorf("counters of hop %d: %w", index, err)
	}
	for _, x := range cpus {
		add(&n, x)
	}
	return n, nil
}

// carried is what went out by hops that are gone.
func (s *set) carried() (n bpf.HopCount, err error) {
	if err := s.Maps[mapCarried].Lookup(uint32(0), &n); err != nil {
		return n, fmt.Errorf("counters of hops that are gone: %w", err)
	}
	return n, nil
}

// carry adds a hop's counters, which no packet uses any more, to those of hops
// that are gone, and sets them to zero.
func (s *set) carry(index uint32) error {
	n, err := s.hopCount(index)
	if err != nil {
		return err
	}
	all, err := s.carried()
	if err != nil {
		return err
	}
	add(&all, n)
	if err := s.Maps[mapCarried].Put(uint32(0), all); err != nil {
		return fmt.Errorf("counters of hops that are gone: %w", err)
	}
	if err := s.Maps[bpf.RouterMapHopCounts].Put(index, make([]bpf.HopCount, ebpf.MustPossibleCPU())); err != nil {
		return fmt.Errorf("counters of hop %d: %w", index, err)
	}
	return nil
}
