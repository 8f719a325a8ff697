package host

import (
	"fmt"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
)

// adoptSources reads what is pinned.
func (a *Agent) adoptSources() error {
	for i := range uint32(bpf.HostSources) {
		var s bpf.HostSource
		if err := a.set.HostSources.Lookup(i, &s); err != nil {
			return fmt.Errorf("map host_sources: %w", err)
		}
		if s.Mask == [2]uint64{} {
			break
		}
		a.sources = append(a.sources, s)
	}
	return nil
}

// writeSources replaces the list.
func (a *Agent) writeSources(to []bpf.HostSource) error {
	for _, w := range tables.SourceWrites(a.sources, to) {
		if err := a.set.HostSources.Put(w.Index, w.Value); err != nil {
			return fmt.Errorf("map host_sources: %w", err)
		}
	}
	a.sources = to
	return nil
}
