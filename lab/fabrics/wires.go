package fabrics

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
)

// wires is the machine that has the middles of all wires: for link 3 a bridge
// w3 with a device towards each end, w3-0 and w3-1.
const wires = "wires"

// queueTime is how long a packet waits at most in the queue of a wire with a
// rate, but for those where fewer than leastQueue bytes would have room.
const (
	queueTime  = 0.04 // s
	leastQueue = 32 << 10
)

func (f *Fabric) wireNamespace() string { return "fl-" + f.Name + "-" + wires }

func bridgeOf(link int) string         { return fmt.Sprint("w", link) }
func wireDevice(link, side int) string { return fmt.Sprintf("w%d-%d", link, side) }

// buildWires makes their namespace. It has no addresses: it is no router.
func (f *Fabric) buildWires() error {
	if err := netspace.Create(f.wireNamespace()); err != nil {
		return err
	}
	return netspace.In(f.wireNamespace(), func() error {
		return netspace.Sysctl("net.ipv6.conf.default.disable_ipv6", "1")
	})
}

// layWire makes a wire with the link's capacity as its rate.
func (f *Fabric) layWire(link int) error {
	for side, e := range f.topology.Links[link].Ends {
		if err := f.veth(f.wireNamespace(), wireDevice(link, side), f.namespace(e.Node), e.Device); err != nil {
			return err
		}
	}
	err := netspace.In(f.wireNamespace(), func() error {
		snooping := false
		bridge := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs(), MulticastSnooping: &snooping}
		bridge.Name, bridge.MTU = bridgeOf(link), f.MTU
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		for side := range 2 {
			if err := joinWire(bridge, wireDevice(link, side)); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(bridge)
	})
	if err != nil {
		return err
	}
	return f.Limit(link, f.topology.Links[link].Capacity)
}

func joinWire(bridge netlink.Link, name string) error {
	device, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netspace.SetOffloads(name); err != nil {
		return err
	}
	if err := netspace.AttachPass(device); err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(device, bridge); err != nil {
		return fmt.Errorf("add to bridge: %w", err)
	}
	return netlink.LinkSetUp(device)
}

// Limit gives a wire a rate in each direction, in bit/s; 0: none.
func (f *Fabric) Limit(link int, rate int64) error {
	return f.EachWireDevice(link, "limit", func(device netlink.Link) error { return limit(device, rate) })
}

// EachWireDevice does something with the wire's two devices, from inside their
// namespace; what it is called where the link is no wire, which is refused.
func (f *Fabric) EachWireDevice(link int, what string, do func(netlink.Link) error) error {
	if !f.wired[link] {
		return fmt.Errorf("%s %s: the link is no wire; give it a capacity, or build the fabric with Wires", what, f.topology.LinkName(link))
	}
	return netspace.In(f.wireNamespace(), func() error {
		for side := range 2 {
			device, err := netlink.LinkByName(wireDevice(link, side))
			if err != nil {
				return err
			}
			if err := do(device); err != nil {
				return fmt.Errorf("wire of %s: %w", f.topology.LinkName(link), err)
			}
		}
		return nil
	})
}

// limit replaces what a device's packets wait in: a token bucket, or nothing.
func limit(device netlink.Link, rate int64) error {
	root := netlink.QdiscAttrs{LinkIndex: device.Attrs().Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}
	if rate == 0 {
		err := netlink.QdiscDel(&netlink.Tbf{QdiscAttrs: root})
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("take rate away: %w", err)
		}
		return nil
	}
	octets := uint64(rate) / 8
	if octets == 0 || octets > math.MaxUint32 {
		return fmt.Errorf("rate %d bit/s: must be 8 to %d", rate, int64(math.MaxUint32)*8)
	}
	// 8 ms worth of tokens: a busy machine's timers are late.
	burst := uint32(max(octets/125, 4<<10))
	q := &netlink.Tbf{QdiscAttrs: root, Rate: octets, Buffer: netlink.Xmittime(octets, burst),
		Limit: max(uint32(float64(octets)*queueTime), leastQueue)}
	if err := netlink.QdiscReplace(q); err != nil {
		return fmt.Errorf("set rate %d bit/s: %w", rate, err)
	}
	return nil
}

// Passed is how many bytes have passed the link since it was laid, headers of
// layer 2 included, from Ends[0] and from Ends[1]: what the other end received.
func (f *Fabric) Passed(link int) (bytes [2]uint64, err error) {
	for side, e := range f.topology.Links[link].Ends {
		err := netspace.In(f.namespace(e.Node), func() error {
			device, err := netlink.LinkByName(e.Device)
			if err == nil {
				bytes[1-side] = device.Attrs().Statistics.RxBytes
			}
			return err
		})
		if err != nil {
			return bytes, fmt.Errorf("bytes of %s: %w", f.topology.LinkName(link), err)
		}
	}
	return bytes, nil
}

// Cut takes a link's carrier away at both ends. What the kernels do then they
// do; others hear of it by Reroute.
func (f *Fabric) Cut(link int) error { return f.setCarrier(link, false) }

// Restore undoes Cut, and reroutes: kernels forget routes of links that are down.
func (f *Fabric) Restore(link int) error {
	if err := f.setCarrier(link, true); err != nil {
		return err
	}
	return f.Reroute()
}

func (f *Fabric) setCarrier(link int, up bool) error {
	set := func(name string) error { return netspace.SetLink(name, up) }
	var err error
	if f.wired[link] {
		err = netspace.In(f.wireNamespace(), func() error { return errors.Join(set(wireDevice(link, 0)), set(wireDevice(link, 1))) })
	} else {
		// A veth has no carrier when its peer is down; this end is then down
		// itself, which takes its routes, too.
		far := f.topology.Links[link].Ends[1]
		err = netspace.In(f.namespace(far.Node), func() error { return set(far.Device) })
		if err == nil && up {
			err = netspace.In(f.namespace(far.Node), func() error { return f.addressAgain(link) })
		}
	}
	if err != nil {
		return fmt.Errorf("carrier of %s: %w", f.topology.LinkName(link), err)
	}
	f.cut[link] = !up
	return nil
}

// addressAgain gives the far end of a link that was down its addresses, some of
// which the kernel forgot.
func (f *Fabric) addressAgain(link int) error {
	device, err := netlink.LinkByName(f.topology.Links[link].Ends[1].Device)
	if err != nil {
		return err
	}
	return f.addressEnd(link, 1, device)
}
