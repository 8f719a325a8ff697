package host

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// host_notes is what the agent changed in its network namespace besides
// programs and addresses, so that this, and nothing of anybody else's, is
// undone by whoever comes after it, though it was killed. A note is written
// before the change.

// note is a key of host_notes.
type note struct {
	Addr  [16]byte // of an endpoint
	Kind  uint32
	Index uint32 // an interface's, or an endpoint's port
}

// Kinds of notes, and what their values say.
const (
	notePromiscuous = 1 // interface Index is promiscuous
	noteEndpoint    = 2 // MPTCP endpoint at Addr and port Index
	noteLimit       = 3 // MPTCP's limit of subflows: before << 32 | set
	noteInitial     = 4 // joins to the initial address were allowed
	noteForwarding  = 5 // the loopback did not forward; Index is 4 or 6
)

func endpointNote(e netip.AddrPort) note {
	return note{e.Addr().As16(), noteEndpoint, uint32(e.Port())}
}

type notes struct{ m *ebpf.Map }

func (n notes) write(k note, value uint64) error {
	if err := n.m.Put(k, value); err != nil {
		return fmt.Errorf("map host_notes: %w", err)
	}
	return nil
}

func (n notes) read(k note) (value uint64, ok bool, err error) {
	err = n.m.Lookup(k, &value)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("map host_notes: %w", err)
	}
	return value, true, nil
}

func (n notes) remove(k note) error {
	if err := n.m.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("map host_notes: %w", err)
	}
	return nil
}

// of lists the notes of a kind.
func (n notes) of(kind uint32) ([]note, error) {
	var list []note
	var k note
	var value uint64
	it := n.m.Iterate()
	for it.Next(&k, &value) {
		if k.Kind == kind {
			list = append(list, k)
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("map host_notes: %w", err)
	}
	return list, nil
}

// undoNotes undoes all that was noted. It must run in the agent's network namespace.
func undoNotes(h *netlink.Handle, n notes) error {
	errs := []error{setPromiscuous(h, n, nil), undoForwarding(n)}
	p, err := openPathManager()
	switch {
	case errors.Is(err, errNoMPTCP):
	case err != nil:
		errs = append(errs, err)
	default:
		errs = append(errs, p.sync(n, nil), p.loosen(n))
		p.close()
	}
	return errors.Join(errs...)
}
