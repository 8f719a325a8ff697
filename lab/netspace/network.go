package netspace

import (
	"crypto/rand"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MachineSysctls are for every namespace, before it has devices: both families
// work at once, and nothing is dropped for where it came from.
var MachineSysctls = [][2]string{
	{"net.ipv6.conf.all.disable_ipv6", "0"},
	{"net.ipv6.conf.default.disable_ipv6", "0"},
	{"net.ipv6.conf.default.accept_dad", "0"}, // addresses work at once
	{"net.ipv6.conf.default.accept_ra", "0"},
	// A server's replies leave with the VIP's address, and tunnels arrive
	// from sources that no route leads back to.
	{"net.ipv4.conf.all.rp_filter", "0"},
	{"net.ipv4.conf.default.rp_filter", "0"},
}

// LoopbackUp brings up lo of the namespace that the calling thread is in.
func LoopbackUp() error { return SetLink("lo", true) }

// SetLink sets a device of that namespace up or down.
func SetLink(name string, up bool) error {
	device, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if up {
		return netlink.LinkSetUp(device)
	}
	return netlink.LinkSetDown(device)
}

// AddAddress gives a device addresses, written ADDRESS/BITS, in the namespace
// that the calling thread is in. They work at once.
func AddAddress(to netlink.Link, addresses ...string) error {
	for _, text := range addresses {
		a, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(to, a); err != nil {
			return fmt.Errorf("add address %s to %s: %w", text, to.Attrs().Name, err)
		}
	}
	return nil
}

// Sysctls sets lists of names and values, as Sysctl does.
func Sysctls(lists ...[][2]string) error {
	for _, list := range lists {
		for _, s := range list {
			if err := Sysctl(s[0], s[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// ChooseCongestionControl takes cubic, or reno where namespaces may not
// choose it. The machine's default may be bbr, which paces by itself and
// needs a queue discipline that small kernels lack.
func ChooseCongestionControl() error {
	if Sysctl("net.ipv4.tcp_congestion_control", "cubic") == nil {
		return nil
	}
	return Sysctl("net.ipv4.tcp_congestion_control", "reno")
}

// HardwareAddress is a random address of the local kind. Its first octet is
// none of scheme faild's.
func HardwareAddress() net.HardwareAddr {
	a := make(net.HardwareAddr, 6)
	_, _ = rand.Read(a) // never fails
	a[0] = 2
	return a
}
