package kernel

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
)

// ReasonCount is how many packets met a reason, by its name in metrics and status
// (lower case, without the prefix of the enum).
type ReasonCount struct {
	Name           string
	Packets, Bytes uint64
}

// ReadReasons sums a map's counters by reason over the CPUs: every one of the closed
// set, by its number.
func ReadReasons(m *ebpf.Map, names []string) ([]ReasonCount, error) {
	var all []ReasonCount
	for r, name := range names {
		var cpus []bpf.Count
		if err := m.Lookup(uint32(r), &cpus); err != nil {
			return nil, fmt.Errorf("counter of reason %d (%s): %w", r, name, err)
		}
		n := ReasonCount{Name: name}
		for _, x := range cpus {
			n.Packets += x.Packets
			n.Bytes += x.Bytes
		}
		all = append(all, n)
	}
	return all, nil
}
