package host

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// On kernels without tcx the egress program is a classifier of the clsact
// queueing discipline. Such a filter is not a link: it has no pin, and is
// found again by its name.
const (
	classicName     = "fairlead_host_out"
	classicPriority = 0xfa1e
)

func classicFilter(index int) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1,
			Protocol: unix.ETH_P_ALL, Priority: classicPriority,
		},
		Name: classicName, DirectAction: true,
	}
}

// attachClassic adds the filter, or replaces it in one step.
func (a *Agent) attachClassic(dev *net.Interface) error {
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: dev.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType:  "clsact",
	}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("interface %s: add clsact: %w", dev.Name, err)
	}
	f := classicFilter(dev.Index)
	f.Fd = a.set.HostOut.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("interface %s: attach to egress: %w", dev.Name, err)
	}
	return nil
}

// detachClassic removes our filter wherever it is in this namespace, except
// on the interfaces (by index) that keep names.
func detachClassic(keep func(index int) bool) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		if keep(l.Attrs().Index) {
			continue
		}
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_EGRESS)
		if err != nil {
			continue // no clsact there
		}
		for _, f := range filters {
			if b, ok := f.(*netlink.BpfFilter); ok && b.Name == classicName {
				errs = append(errs, netlink.FilterDel(b))
			}
		}
	}
	return errors.Join(errs...)
}

// xdpMode is how the kernel says that XDP runs on an interface.
func xdpMode(index int) (string, error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return "", err
	}
	x := l.Attrs().Xdp
	switch {
	case x == nil || !x.Attached:
		return "", fmt.Errorf("interface %s: the XDP program is pinned but not attached", l.Attrs().Name)
	case x.AttachMode == 2: // XDP_ATTACHED_SKB
		return "generic", nil
	}
	return "native", nil
}
