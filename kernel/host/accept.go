package host

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
)

// Frames of scheme faild are addressed to MACs that name slots and are no
// card's own (Faild, NSDI'18, §4.1). The card lets them in because it is
// promiscuous, and the stack takes them because host_accept, on tc ingress,
// says that they are for this machine. Both are there only while a VIP of
// scheme faild is.

// accept has frames for slots' MACs accepted, from here on, and where they are not
// any more. A device that host_in is not on is left to a later look.
func (a *Agent) accept() error {
	// Interfaces are attached to by their number, which means something in the
	// agent's network namespace alone.
	err := kernel.InNamespace(a.ns, func() error {
		var errs []error
		for i := range a.devices {
			d := &a.devices[i]
			d.Ingress = kernel.Off
			if d.Mode == kernel.Off {
				continue
			}
			kind, err := a.attachAccept(d)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			d.Ingress = kind
		}
		return errors.Join(errs...)
	})
	if err = errors.Join(err, a.openCards()); err == nil {
		a.accepting = true
	}
	return err
}

// openCards has the cards let these frames in, and notes the cards' own MACs.
func (a *Agent) openCards() error {
	keep := map[int]bool{}
	for _, d := range a.devices {
		if d.Index != 0 { // else it is gone, which status says
			keep[d.Index] = true
		}
	}
	return errors.Join(a.writeNICs(), setPromiscuous(a.netlink, a.notes, keep))
}

// refuse undoes accept, and what an agent before this one accepted.
func (a *Agent) refuse() error {
	a.accepting = false
	errs := []error{setPromiscuous(a.netlink, a.notes, nil)}
	for i := range a.devices {
		a.devices[i].Ingress = ""
		errs = append(errs, a.folder.Drop(linkName(linkAccept, a.devices[i].Name)))
	}
	return errors.Join(append(errs, detachClassic(a.netlink, classicAccept, nil))...)
}

// linkAccept is the first part of the names of host_accept's links.
const linkAccept = "accept"

// attachAccept attaches host_accept before what other programs do on the way
// in: until it ran, the frame is another machine's.
func (a *Agent) attachAccept(d *Interface) (kind string, err error) {
	return a.attachTC(linkName(linkAccept, d.Name), classicAccept, &net.Interface{Index: d.Index, Name: d.Name}, "host_accept",
		ebpf.AttachTCXIngress, link.Head())
}

// writeNICs notes the interfaces' own MACs, from which packets are passed on.
func (a *Agent) writeNICs() error {
	for _, d := range a.devices {
		if d.Index == 0 {
			continue // it is gone, which status says
		}
		l, err := a.netlink.LinkByIndex(d.Index)
		if err != nil {
			return fmt.Errorf("interface %s: %w", d.Name, err)
		}
		hw := l.Attrs().HardwareAddr
		if len(hw) != 6 {
			return fmt.Errorf("interface %s: it is no Ethernet, which scheme faild needs: name others under servers[].interfaces", d.Name)
		}
		word, index := macWord([6]byte(hw), 0), uint32(d.Index)
		var old uint64
		if a.set.HostNics.Lookup(index, &old) == nil && old == word {
			continue
		}
		if err := a.set.HostNics.Put(index, word); err != nil {
			return fmt.Errorf("map host_nics: %w", err)
		}
	}
	return nil
}

// setPromiscuous makes the interfaces in keep promiscuous and no others of
// which there is a note. One that somebody else made so is left alone.
func setPromiscuous(h *netlink.Handle, n notes, keep map[int]bool) error {
	for index := range keep {
		k := note{Kind: notePromiscuous, Index: uint32(index)}
		l, err := h.LinkByIndex(index)
		if err != nil {
			return fmt.Errorf("interface %d: %w", index, err)
		}
		if l.Attrs().RawFlags&unix.IFF_PROMISC != 0 {
			continue
		}
		if err := n.write(k, 1); err != nil {
			return err
		}
		if err := h.SetPromiscOn(l); err != nil {
			return fmt.Errorf("interface %s: make it promiscuous: %w", l.Attrs().Name, err)
		}
	}
	noted, err := n.of(notePromiscuous)
	if err != nil {
		return err
	}
	for _, k := range noted {
		if keep[int(k.Index)] {
			continue
		}
		l, err := h.LinkByIndex(int(k.Index))
		if err == nil {
			err = h.SetPromiscOff(l)
		}
		var gone netlink.LinkNotFoundError
		if err != nil && !errors.As(err, &gone) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("interface %d: not promiscuous any more: %w", k.Index, err)
		}
		if err := n.remove(k); err != nil {
			return err
		}
	}
	return nil
}

// macOf is an interface's own MAC, as host_nics has it.
func (a *Agent) macOf(index uint32) (mac net.HardwareAddr, ok bool) {
	var word uint64
	if a.set.HostNics.Lookup(index, &word) != nil {
		return nil, false
	}
	return macBytes(word), true
}
