package host

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
)

// mapControl is pinned last.
const mapControl = "host_control"

// mapReasons is the one map whose form grows without a new layout: it counts,
// and nobody's connection hangs on it.
const mapReasons = "host_reasons"

// fewerReasons says that m is s of an older build, with fewer reasons.
func fewerReasons(s *ebpf.MapSpec, m *ebpf.Map) bool {
	return m.Type() == s.Type && m.KeySize() == s.KeySize && m.ValueSize() == s.ValueSize && m.MaxEntries() < s.MaxEntries
}

// carryReasons takes the counts over. What the programs in force count from
// here until they are replaced, which is next, is lost.
func carryReasons(from, to *ebpf.Map) error {
	for r := range from.MaxEntries() {
		var cpus []bpf.Count
		if err := from.Lookup(r, &cpus); err != nil {
			return fmt.Errorf("map %s, as it was: %w", mapReasons, err)
		}
		if err := to.Put(r, cpus); err != nil {
			return fmt.Errorf("map %s: %w", mapReasons, err)
		}
	}
	return nil
}
