package lb

import (
	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/scheme/seats"
)

// What one balancer keeps in bpffs, so that packets go on without a process:
//
//	PinDir/maps/NAME        the maps in force
//	PinDir/programs/NAME    the programs in force
//	PinDir/links/xdp-IFACE      attachment of `lb`
//	PinDir/links/checks-lo      attachment of `health`
//	PinDir/links/answers-IFACE  attachment of `health_back`
//	PinDir/next/…               a set that is being brought in (see swap.go)
const dirNext = "next"

// linkPin is the pin's name of a link.
func linkPin(kind, iface string) string { return kind + "-" + kernel.Name(iface) }

// objects are one set of loaded maps and programs.
type objects struct {
	*kernel.Set
	readOnly bool        // opened without the right to write
	entries  []uint64    // of `tables`, once mapEntries mapped it
	steers   []bpf.Steer // of `steers`, likewise
	mapped   [][]byte    // these mappings
	seats    *seats.Table
	seated   [][]byte // its mappings
}

func (o *objects) close() {
	if o == nil {
		return
	}
	o.unmap()
	o.Close()
}

// loadPinned opens what is pinned below dir.
func loadPinned(dir string, opts *ebpf.LoadPinOptions) (*objects, error) {
	s, err := kernel.OpenSet(dir, opts)
	if err != nil {
		return nil, err
	}
	return &objects{Set: s, readOnly: opts != nil && opts.ReadOnly}, nil
}

// Unload detaches a balancer's programs and removes everything pinned under
// pinDir: packets go to the kernel untouched from then on. The routes of health
// checks go, too, if it runs in the balancer's network namespace. Nothing pinned
// is no error.
func Unload(pinDir string) error { return kernel.Unload(pinDir, unrouteChecks) }
