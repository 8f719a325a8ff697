package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/scheme/jet"
)

// TableUse is what a balancer's tables hold, read from its pinned maps.
type TableUse struct {
	// Schemes are those whose VIPs share it.
	Schemes  []string `json:"schemes"`
	Balancer string   `json:"balancer"`
	// Limit is how many entries the flow table has room for.
	Limit int `json:"limit"`
	// Entries by their state (docs/jet.md).
	New       int `json:"new"`
	Confirmed int `json:"confirmed"`
	Fading    int `json:"fading"`
	Datagram  int `json:"datagram"`
	// FlowBytes is the kernel's memory of the flow table, MapBytes of all
	// the balancer's maps, that one among them.
	FlowBytes uint64 `json:"flow_bytes"`
	MapBytes  uint64 `json:"map_bytes"`
}

// used is how many places are taken.
func (t TableUse) used() int { return t.New + t.Confirmed + t.Fading + t.Datagram }

// tableUse reads a balancer's tables.
func (l *Lab) tableUse(ctx context.Context, machine string) (TableUse, error) {
	use := TableUse{Balancer: machine}
	status, err := l.daemonStatus(ctx, machine)
	if err != nil {
		return use, fmt.Errorf("ask %s: %w", machine, err)
	}
	dir := filepath.Join(status.PinDir, "maps")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return use, fmt.Errorf("read maps of %s: %w", machine, err)
	}
	for _, e := range entries {
		err := func() error {
			m, err := ebpf.LoadPinnedMap(filepath.Join(dir, e.Name()), &ebpf.LoadPinOptions{ReadOnly: true})
			if err != nil {
				return err
			}
			defer m.Close()
			info, err := m.Info()
			if err != nil {
				return err
			}
			bytes, _ := info.Memlock()
			use.MapBytes += bytes
			if e.Name() != "flows" {
				return nil
			}
			use.FlowBytes = bytes
			return use.count(m)
		}()
		if err != nil {
			return use, fmt.Errorf("read map %s of %s: %w", e.Name(), machine, err)
		}
	}
	return use, nil
}

// count counts the entries of a flow table: sets of eight tags, of which 0
// is an empty place, and seven entries (struct fl_flow_set).
func (t *TableUse) count(flows *ebpf.Map) error {
	t.Limit = int(flows.MaxEntries()) * jet.Ways
	states := map[jet.State]*int{jet.New: &t.New, jet.Confirmed: &t.Confirmed, jet.Fading: &t.Fading, jet.Datagram: &t.Datagram}
	var cursor ebpf.MapBatchCursor
	const batch = 4096
	keys, sets := make([]uint32, batch), make([][64]byte, batch)
	for {
		n, err := flows.BatchLookup(&cursor, keys, sets, nil)
		for _, b := range sets[:n] {
			for i := range jet.Ways {
				if b[i] != 0 {
					*states[jet.Entry(binary.NativeEndian.Uint64(b[8+8*i:])).State()]++
				}
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		default:
			return err
		}
	}
}
