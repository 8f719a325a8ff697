package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

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
	progs := filepath.Join(a.o.PinDir, dirPrograms)
	for name, p := range a.programs() {
		if err := kernel.Replace(p, filepath.Join(progs, name)); err != nil {
			return err
		}
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
		i.Egress = off
	}
	if i.Mode, in = a.attachIn(dev); in != nil {
		i.Mode = off
	}
	return errors.Join(out, in)
}

// detachOthers takes the programs off interfaces that the agent no longer
// serves.
func (a *Agent) detachOthers() error {
	keep := map[string]bool{linkSockops: true}
	classic, ours := map[int]bool{}, map[int]bool{}
	for _, d := range a.devices {
		ours[d.Index] = true
		keep[kernel.Name("xdp-"+d.Name)] = true
		// Whether it is still needed, the assignment will say.
		keep[kernel.Name(linkAccept+"-"+d.Name)] = true
		if d.Egress == egressTCX {
			keep[kernel.Name("tcx-"+d.Name)] = true
		} else {
			classic[d.Index] = true
		}
	}
	err := kernel.Each(filepath.Join(a.o.PinDir, dirLinks), func(name, _ string) error {
		if keep[name] {
			return nil
		}
		a.log.Info("taken off an interface that is not named any more", "link", name)
		return a.drop(name)
	})
	return errors.Join(err, detachClassic(a.netlink, classicOut, classic), detachClassic(a.netlink, classicAccept, ours))
}

// unpin removes a pinned link that nobody holds, and with it the attachment.
func unpin(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Unpin()
}

// drop detaches the link of that name.
func (a *Agent) drop(name string) error {
	if l := a.links[name]; l != nil {
		l.Close()
		delete(a.links, name)
	}
	return unpin(filepath.Join(a.o.PinDir, dirLinks, name))
}

// hold has p attached by the link of that name, held open and pinned. One that
// was pinned before is switched over to p; one that is not at `at` any more (a
// device's index; 0: anywhere), because somebody detached it or its device was
// deleted, perhaps made anew under the same name, is made again by attach.
func (a *Agent) hold(name string, at int, p *ebpf.Program, attach func() (link.Link, error)) error {
	path := filepath.Join(a.o.PinDir, dirLinks, name)
	lost := a.links[name] != nil
	if l := a.links[name]; l != nil {
		is, err := isAt(l, at)
		if err != nil {
			return err // which does not say that it is detached
		}
		if is {
			again, err := kernel.Repin(l, path)
			if again {
				a.log.Warn("the pin of a link was removed, and is made again", "pin", path)
			}
			return err
		}
		l.Close()
		delete(a.links, name)
	}
	l, err := link.LoadPinnedLink(path, nil)
	switch {
	case err == nil:
		if is, _ := isAt(l, at); is && l.Update(p) == nil {
			a.links[name] = l
			return nil
		}
		l.Close()
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("adopt %s: %w", path, err)
	}
	if l, err = attach(); err != nil {
		return err
	}
	if err := kernel.Replace(l, path); err != nil {
		l.Close()
		return err
	}
	a.links[name] = l
	if lost || a.attached {
		a.log.Warn("a program was not attached any more, and is put back", "link", name)
	}
	return nil
}

func isAt(l link.Link, at int) (bool, error) {
	is, err := kernel.Where(l)
	return is != 0 && (at == 0 || is == uint64(at)), err
}

func linkName(kind, iface string) string { return kernel.Name(kind + "-" + iface) }

func (a *Agent) attachIn(dev *net.Interface) (mode string, err error) {
	err = a.hold(linkName("xdp", dev.Name), dev.Index, a.set.HostIn, func() (link.Link, error) { return a.attachXDP(dev) })
	if err != nil {
		return "", err
	}
	return xdpMode(a.netlink, dev.Index)
}

func (a *Agent) attachXDP(dev *net.Interface) (link.Link, error) {
	patience := kernel.Patience
	if a.attached { // the next look tries again
		patience = 0
	}
	l, err := kernel.AttachXDP(a.set.HostIn, dev.Index, dev.Name, patience, a.log)
	switch {
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE):
		return nil, fmt.Errorf("interface %s: %w; its MTU of %d may be too large for XDP, or large receive offload is on (ethtool -K %s lro off)",
			dev.Name, err, dev.MTU, dev.Name)
	case err != nil:
		return nil, fmt.Errorf("interface %s: %w", dev.Name, err)
	}
	return l, nil
}

// attachOut attaches host_out behind what other programs (and other agents)
// do on the way out, so that it sees the packets as they leave.
func (a *Agent) attachOut(dev *net.Interface) (kind string, err error) {
	return a.attachTC(linkName("tcx", dev.Name), classicOut, dev, a.set.HostOut, ebpf.AttachTCXEgress, link.Tail())
}

// attachTC attaches a program of tc by tcx, or where the kernel has none as a
// filter of clsact.
func (a *Agent) attachTC(name string, c classic, dev *net.Interface, p *ebpf.Program, to ebpf.AttachType, where link.Anchor) (kind string, err error) {
	if !a.o.classic {
		err = a.hold(name, dev.Index, p, func() (link.Link, error) {
			return link.AttachTCX(link.TCXOptions{Interface: dev.Index, Program: p, Attach: to, Anchor: where})
		})
		if err == nil {
			return egressTCX, nil
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return "", fmt.Errorf("interface %s: attach %s: %w", dev.Name, name, err)
		}
	}
	if a.attached {
		if there, err := hasClassic(a.netlink, c, dev.Index); there || err != nil {
			return egressClsact, err
		}
		a.log.Warn("a program was not attached any more, and is put back", "filter", c.name, "interface", dev.Name)
	}
	return egressClsact, attachClassic(a.netlink, c, dev.Index, dev.Name, p)
}

func (a *Agent) attachSockops() error {
	return a.hold(linkSockops, 0, a.set.HostSockops, func() (link.Link, error) {
		dir, done, err := cgroupRoot()
		if err != nil {
			return nil, err
		}
		defer done()
		l, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: ebpf.AttachCGroupSockOps, Program: a.set.HostSockops})
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

// detach removes the pinned links, and with them the attachments.
func detach(pinDir string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	errs := []error{detachClassic(h, classicOut, nil), detachClassic(h, classicAccept, nil)}
	err = kernel.Each(filepath.Join(pinDir, dirLinks), func(_, path string) error { return unpin(path) })
	return errors.Join(append(errs, err)...)
}
