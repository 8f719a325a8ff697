package lb

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
)

const mapTierSources = bpf.LBMapTierSources

// takeTunnels says from where a balancer of tier two takes tunnels: from balancers.
func (o *objects) takeTunnels(sources []netip.Prefix) error {
	m := o.Maps[mapTierSources]
	if m == nil {
		return fmt.Errorf("no map %s is pinned: restart the daemon", mapTierSources)
	}
	want, err := tables.HostSources(sources)
	if err != nil {
		return err
	}
	var have []bpf.HostSource
	for i := range uint32(bpf.TierSources) {
		var s bpf.HostSource
		if err := m.Lookup(i, &s); err != nil {
			return fmt.Errorf("map %s: %w", mapTierSources, err)
		}
		if s.Mask == [2]uint64{} {
			break
		}
		have = append(have, s)
	}
	for _, w := range tables.SourceWrites(have, want) {
		if err := m.Put(w.Index, w.Value); err != nil {
			return fmt.Errorf("map %s: %w", mapTierSources, err)
		}
	}
	return nil
}

// tierSources reads them back.
func (t *Twin) tierSources() (all []netip.Prefix, err error) {
	for i := range uint32(bpf.TierSources) {
		var s bpf.HostSource
		if err := t.set.Maps[mapTierSources].Lookup(i, &s); err != nil {
			return nil, err
		}
		if s.Mask == [2]uint64{} {
			break
		}
		all = append(all, tables.SourcePrefix(s))
	}
	return all, nil
}
