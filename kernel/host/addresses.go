package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/tables"
)

// The VIPs stand on the loopback, where the stack takes their packets and no
// neighbour is told of them (for l2, arp_ignore and arp_announce must keep
// the other interfaces quiet as well; fairlead doctor looks). host_added
// notes those that the agent added, so that only these are ever removed.

const loopback = "lo"

func vipAddress(a netip.Addr) *netlink.Addr {
	bits := a.BitLen()
	addr := &netlink.Addr{
		IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(bits, bits)},
		Flags: unix.IFA_F_NODAD,
	}
	// Never chosen as a source for the server's own connections.
	if a.Is4() {
		addr.Scope = unix.RT_SCOPE_HOST
	} else {
		addr.Flags |= unix.IFA_F_NOPREFIXROUTE
		addr.ValidLft, addr.PreferedLft = 0xffffffff, 0
	}
	return addr
}

// putVIPs adds the VIPs that are not there yet. Called before the table is
// switched: a packet that is decapsulated finds its address.
func (a *Agent) putVIPs(t *tables.HostTable) error {
	lo, err := a.netlink.LinkByName(loopback)
	if err != nil {
		return fmt.Errorf("host agent: loopback: %w", err)
	}
	if lo.Attrs().Flags&net.FlagUp == 0 {
		if err := a.netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("host agent: loopback: %w", err)
		}
	}
	for vip := range t.VIPs() {
		if err := a.putVIP(lo, vip); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) putVIP(lo netlink.Link, vip netip.Addr) error {
	err := a.netlink.AddrAdd(lo, vipAddress(vip))
	if errors.Is(err, unix.EEXIST) {
		return nil // somebody else's, or added before
	}
	if err != nil {
		return fmt.Errorf("host agent: add VIP %s to the loopback: %w", vip, err)
	}
	if err := a.set.HostAdded.Put(vip.As16(), uint8(1)); err != nil {
		return fmt.Errorf("map host_added: %w", err)
	}
	return nil
}

// dropVIPs removes those that we added and that serve no more.
func (a *Agent) dropVIPs(t *tables.HostTable) error {
	keep := t.VIPs()
	return removeVIPs(a.netlink, a.set.HostAdded, func(vip netip.Addr) bool { return keep[vip] })
}

func removeVIPs(h *netlink.Handle, added *ebpf.Map, keep func(netip.Addr) bool) error {
	lo, err := h.LinkByName(loopback)
	if err != nil {
		return fmt.Errorf("host agent: loopback: %w", err)
	}
	var key [16]byte
	var one uint8
	var gone []netip.Addr
	for it := added.Iterate(); it.Next(&key, &one); {
		if vip := netip.AddrFrom16(key).Unmap(); !keep(vip) {
			gone = append(gone, vip)
		}
	}
	for _, vip := range gone {
		if err := h.AddrDel(lo, vipAddress(vip)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("host agent: remove VIP %s from the loopback: %w", vip, err)
		}
		if err := added.Delete(vip.As16()); err != nil {
			return fmt.Errorf("map host_added: %w", err)
		}
	}
	return nil
}
