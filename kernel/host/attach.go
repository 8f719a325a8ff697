package host

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
)

// Interface is where the programs are attached.
type Interface struct {
	Name   string
	Index  int
	Mode   string // of XDP: native, generic or, where the program is not on it, off
	Egress string // tcx, clsact or off
	// Ingress is how host_accept is attached, or off; empty while no VIP of scheme
	// faild is served.
	Ingress string
	MTU     int
}

// How programs of tc can be attached.
const (
	egressTCX    = "tcx"
	egressClsact = "clsact"
)

// attach puts the programs to work: a pinned link is switched over to the new
// program in one step, so that no packet meets none; what is not attached yet
// is attached and pinned. host_sockops comes first, so that no connection is
// stamped in its handshake and forgotten after it.
func (a *Agent) attach() error {
	if err := a.loaded.Pin(a.folder.Dir, mapControl); err != nil {
		return err
	}
	if err := a.attachSockops(); err != nil {
		return err
	}
	for _, name := range a.o.Interfaces {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return fmt.Errorf("interface %s: %w; name one that exists in the agent's network namespace", name, err)
		}
		i := Interface{Name: name}
		if err := a.attachTo(&i, dev); err != nil {
			return err
		}
		a.devices = append(a.devices, i)
	}
	return a.detachOthers()
}

// attachTo has the programs attached to a device, and says in i how. What is there
// already stays.
func (a *Agent) attachTo(i *Interface, dev *net.Interface) error {
	var in, out error
	i.Index, i.MTU = dev.Index, dev.MTU
	if i.Egress, out = a.attachOut(dev); out != nil {
		i.Egress = kernel.Off
	}
	if i.Mode, in = a.attachIn(dev); in != nil {
		i.Mode = kernel.Off
	}
	return errors.Join(out, in)
}

// detachOthers takes the programs off interfaces that the agent no longer
// serves.
func (a *Agent) detachOthers() error {
	accept, classic, ours := map[string]bool{}, map[int]bool{}, map[int]bool{}
	for _, d := range a.devices {
		ours[d.Index] = true
		// Whether it is still needed, the assignment will say.
		accept[linkName(linkAccept, d.Name)], accept[linkName(linkHandshake, d.Name)] = true, true
		if d.Egress != egressTCX {
			classic[d.Index] = true
		}
	}
	err := a.folder.Settle(func(pin string) bool { return accept[pin] || a.folder.Holds(pin) })
	return errors.Join(err, detachClassic(a.netlink, classicOut, classic), detachClassic(a.netlink, classicAccept, ours), detachClassic(a.netlink, classicHandshake, ours))
}

// hold has the program of that name attached by a link.
func (a *Agent) hold(pin string, at int, program string, attach func(*ebpf.Program, time.Duration) (link.Link, error)) error {
	p := a.loaded.Programs[program]
	return a.folder.Hold(kernel.Place{Pin: pin, At: at, Program: p, Before: a.before[program],
		Attach: func(patience time.Duration) (link.Link, error) { return attach(p, patience) }})
}

func linkName(kind, iface string) string { return kernel.Name(kind + "-" + iface) }

func (a *Agent) attachIn(dev *net.Interface) (mode string, err error) {
	err = a.hold(linkName("xdp", dev.Name), dev.Index, "host_in", func(p *ebpf.Program, patience time.Duration) (link.Link, error) {
		return a.attachXDP(p, dev, patience)
	})
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", dev.Name, err)
	}
	l, err := a.netlink.LinkByIndex(dev.Index)
	if err != nil {
		return "", err
	}
	if mode = kernel.XDPMode(l); mode == kernel.Off {
		return "", fmt.Errorf("interface %s: the XDP program is pinned but not attached", dev.Name)
	}
	return mode, nil
}

func (a *Agent) attachXDP(p *ebpf.Program, dev *net.Interface, patience time.Duration) (link.Link, error) {
	l, err := kernel.AttachXDP(p, dev.Index, dev.Name, patience, a.log)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE) {
		err = fmt.Errorf("%w; its MTU of %d may be too large for XDP, or large receive offload is on (ethtool -K %s lro off)", err, dev.MTU, dev.Name)
	}
	return l, err
}

// attachOut attaches host_out behind what other programs (and other agents)
// do on the way out, so that it sees the packets as they leave.
func (a *Agent) attachOut(dev *net.Interface) (kind string, err error) {
	return a.attachTC(linkName("tcx", dev.Name), classicOut, dev, "host_out", ebpf.AttachTCXEgress, link.Tail())
}

// attachTC attaches a program of tc by tcx, or where the kernel has none as a
// filter of clsact.
func (a *Agent) attachTC(name string, c classic, dev *net.Interface, program string, to ebpf.AttachType, where link.Anchor) (kind string, err error) {
	if !a.o.classic {
		err = a.hold(name, dev.Index, program, func(p *ebpf.Program, _ time.Duration) (link.Link, error) {
			return kernel.AttachTCX(p, dev.Index, to, where)
		})
		if err == nil {
			return egressTCX, nil
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return "", fmt.Errorf("interface %s: %w", dev.Name, err)
		}
	}
	if a.attached {
		if there, err := hasClassic(a.netlink, c, dev.Index); there || err != nil {
			return egressClsact, err
		}
		a.log.Warn("a program was not attached any more, and is put back", "filter", c.name, "interface", dev.Name)
	}
	return egressClsact, attachClassic(a.netlink, c, dev.Index, dev.Name, a.loaded.Programs[program])
}

func (a *Agent) attachSockops() error {
	return a.hold(linkSockops, 0, "host_sockops", func(p *ebpf.Program, _ time.Duration) (link.Link, error) {
		dir, done, err := cgroupRoot()
		if err != nil {
			return nil, err
		}
		defer done()
		l, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: ebpf.AttachCGroupSockOps, Program: p})
		if err != nil {
			return nil, fmt.Errorf("attach to the root of cgroup v2 (%s): %w", dir, err)
		}
		return l, nil
	})
}

// Pins are the pins of an agent's links on these interfaces, and the interface that
// each link is at; host_sockops is at none, nor is there a pin of host_out where it is
// a filter. Looks in the calling thread's namespace.
func Pins(interfaces []string) map[string]string {
	pins := map[string]string{linkSockops: ""}
	for _, name := range interfaces {
		pins[linkName("xdp", name)] = name
		if dev, err := netlink.LinkByName(name); err == nil {
			if there, err := hasClassic(&netlink.Handle{}, classicOut, dev.Attrs().Index); err == nil && there {
				continue
			}
		}
		pins[linkName("tcx", name)] = name
	}
	return pins
}

// linkSockops is the name of host_sockops' link.
const linkSockops = "sockops"
