package host

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// On kernels without tcx a program is a classifier of the clsact queueing
// discipline. Such a filter is not a link: it has no pin, and is found again
// by its name.

// classicPriority sorts our filters among others.
const classicPriority = 0xfa1e

// classic is one of our programs as a filter.
type classic struct {
	name   string
	parent uint32
}

var (
	classicOut    = classic{"fairlead_host_out", netlink.HANDLE_MIN_EGRESS}
	classicAccept = classic{"fairlead_host_accept", netlink.HANDLE_MIN_INGRESS}
)

func (c classic) filter(index int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: c.parent, Handle: 1,
			Protocol: unix.ETH_P_ALL, Priority: classicPriority,
		},
		Name: c.name, DirectAction: true,
	}
}

// attachClassic adds the filter, or replaces it in one step.
func attachClassic(h *netlink.Handle, c classic, index int, device string, p *ebpf.Program) error {
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	if err := h.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("interface %s: add clsact: %w", device, err)
	}
	f := c.filter(index)
	f.Fd = p.FD()
	if err := h.FilterReplace(f); err != nil {
		return fmt.Errorf("interface %s: attach %s: %w", device, c.name, err)
	}
	return nil
}

// hasClassic says whether the filter is on an interface.
func hasClassic(h *netlink.Handle, c classic, index int) (bool, error) {
	l, err := h.LinkByIndex(index)
	if err != nil {
		return false, err
	}
	filters, err := h.FilterList(l, c.parent)
	if err != nil {
		return false, nil // no clsact there
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == c.name {
			return true, nil
		}
	}
	return false, nil
}

// detachClassic removes a filter of ours wherever it is in this namespace,
// except on the interfaces (by index) in keep.
func detachClassic(h *netlink.Handle, c classic, keep map[int]bool) error {
	links, err := h.LinkList()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if keep[l.Attrs().Index] {
			continue
		}
		filters, err := h.FilterList(l, c.parent)
		if err != nil {
			continue // no clsact there
		}
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok && b.Name == c.name {
				errs = append(errs, h.FilterDel(b))
			}
		}
	}
	return errors.Join(errs...)
}
