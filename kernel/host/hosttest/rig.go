package hosttest

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// Addresses of the rig; both families at once.
//
//	client                                   server
//	c0 10.99.0.1, fd99::1  ───────────────  s0 10.99.0.2, fd99::2   MTU 1600
//	routes to the VIPs through the server; MTU of the routes 1500
var (
	Client4, Client6 = netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("fd99::1")
	Server4, Server6 = netip.MustParseAddr("10.99.0.2"), netip.MustParseAddr("fd99::2")
	VIP4, VIP6       = netip.MustParseAddr("10.99.99.99"), netip.MustParseAddr("fd99:99::99")
)

// ServerInterface and ClientInterface are the two ends of the wire.
const (
	ServerInterface = "s0"
	ClientInterface = "c0"
)

// Rig is a client and a server on one wire.
type Rig struct {
	Client, Server *Namespace
	encap          *encapObjects
	link           link.Link
}

// New builds the rig. Close it.
func New() (*Rig, error) {
	r := &Rig{}
	var err error
	if r.Client, err = NewNamespace(); err != nil {
		return nil, err
	}
	if r.Server, err = NewNamespace(); err != nil {
		return nil, err
	}
	// No duplicate address detection: neighbours are asked for from link-local
	// addresses, which would be tentative for seconds.
	for _, n := range []*Namespace{r.Client, r.Server} {
		for _, conf := range []string{"all", "default"} {
			if err := n.Sysctl("net.ipv6.conf."+conf+".accept_dad", "0"); err != nil {
				return nil, err
			}
		}
	}
	err = r.Client.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = ClientInterface, 1600
		// Not the kernel's random ones: they may begin with 9a or 9e, by which
		// faild's hosts tell each other's frames.
		attrs.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 1}
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: ServerInterface,
			PeerNamespace: netlink.NsFd(r.Server.FD()), PeerHardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}})
	})
	if err != nil {
		return nil, fmt.Errorf("veth: %w", err)
	}
	setUp := func(name string, addrs ...netip.Addr) func() error {
		return func() error {
			for _, dev := range []string{"lo", name} {
				l, err := netlink.LinkByName(dev)
				if err == nil {
					err = netlink.LinkSetUp(l)
				}
				if err != nil {
					return err
				}
				if dev == "lo" {
					continue
				}
				if err := netlink.LinkSetMTU(l, 1600); err != nil {
					return err
				}
				for _, a := range addrs {
					bits := 24
					if a.Is6() {
						bits = 64
					}
					addr := &netlink.Addr{IPNet: netlink.NewIPNet(a.AsSlice()), Flags: unix.IFA_F_NODAD}
					addr.IPNet.Mask = mask(bits, a.BitLen())
					if err := netlink.AddrAdd(l, addr); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	if err := r.Client.Do(setUp(ClientInterface, Client4, Client6)); err != nil {
		return nil, err
	}
	if err := r.Server.Do(setUp(ServerInterface, Server4, Server6)); err != nil {
		return nil, err
	}
	return r, r.Client.Do(func() error {
		l, err := netlink.LinkByName(ClientInterface)
		if err != nil {
			return err
		}
		for _, v := range [][2]netip.Addr{{VIP4, Server4}, {VIP6, Server6}} {
			dst := netlink.NewIPNet(v[0].AsSlice())
			dst.Mask = mask(v[0].BitLen(), v[0].BitLen())
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, Gw: v[1].AsSlice(), MTU: 1500}); err != nil {
				return fmt.Errorf("route to %s: %w", v[0], err)
			}
		}
		return nil
	})
}

func mask(ones, bits int) []byte {
	m := make([]byte, bits/8)
	for i := range ones {
		m[i/8] |= 0x80 >> (i % 8)
	}
	return m
}

// Tunnel wraps what the client sends to vip from now on; outer.Dst not valid:
// nothing does (l2).
func (r *Rig) Tunnel(vip netip.Addr, outer wire.Outer) error {
	if r.encap != nil {
		r.link.Close()
		r.encap.Close()
		r.encap, r.link = nil, nil
	}
	if !outer.Dst.IsValid() {
		return nil
	}
	spec, err := loadEncap()
	if err != nil {
		return err
	}
	inner := uint32(4)
	if vip.Is6() {
		inner = 6
	}
	// The header over nothing but the packet's version: what wire writes, with
	// lengths taken out again and the IPv4 checksum made right for a length of 0.
	header := outer.Encapsulate([]byte{byte(inner << 4)})
	header = header[:len(header)-1]
	family, udp := uint32(4), 0
	if outer.Dst.Is6() {
		family = 6
		header[4], header[5] = 0, 0
	} else {
		sum := uint32(^binary.BigEndian.Uint16(header[10:])) + uint32(^binary.BigEndian.Uint16(header[2:]))
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(header[10:], ^uint16(sum))
		header[2], header[3] = 0, 0
	}
	if outer.Tunnel.Port() != 0 {
		udp = map[uint32]int{4: 20, 6: 40}[family]
		header[udp+4], header[udp+5] = 0, 0
	}
	var all [60]byte
	copy(all[:], header)
	var dst [16]byte
	copy(dst[:], vip.AsSlice())
	for name, v := range map[string]any{"vip": dst, "inner_family": inner, "outer_family": family,
		"udp_at": uint32(udp), "header_len": uint32(len(header)), "header": all} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	var o encapObjects
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		return fmt.Errorf("%+v", err)
	}
	r.encap = &o
	return r.Client.Do(func() error {
		l, err := netlink.LinkByName(ClientInterface)
		if err != nil {
			return err
		}
		at, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: o.Encap, Attach: ebpf.AttachTCXEgress})
		if err != nil {
			return err
		}
		r.link = at
		return nil
	})
}

// Close removes the rig.
func (r *Rig) Close() {
	if r.link != nil {
		r.link.Close()
	}
	if r.encap != nil {
		r.encap.Close()
	}
	r.Client.Close()
	r.Server.Close()
}
