package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpffs"
)

// Interface is where the programs are attached.
type Interface struct {
	Name   string
	Index  int
	Mode   string // of XDP: native or generic
	Egress string // tcx or clsact
	// Ingress is how host_accept is attached; empty while no VIP of scheme faild
	// is served.
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
	for name, p := range map[string]*ebpf.Program{
		"host_in": a.set.HostIn, "host_out": a.set.HostOut, "host_sockops": a.set.HostSockops, "host_clock": a.set.HostClock,
		"host_accept": a.set.HostAccept,
	} {
		if err := bpffs.Replace(p, filepath.Join(progs, name)); err != nil {
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
		i := Interface{Name: name, Index: dev.Index, MTU: dev.MTU}
		if i.Egress, err = a.attachOut(dev); err != nil {
			return err
		}
		if i.Mode, err = a.attachIn(dev); err != nil {
			return err
		}
		a.devices = append(a.devices, i)
	}
	return a.detachOthers()
}

// detachOthers takes the programs off interfaces that the agent no longer
// serves.
func (a *Agent) detachOthers() error {
	keep := map[string]bool{"sockops": true}
	classic, ours := map[int]bool{}, map[int]bool{}
	for _, d := range a.devices {
		ours[d.Index] = true
		keep[bpffs.Name("xdp-"+d.Name)] = true
		// Whether it is still needed, the assignment will say.
		keep[bpffs.Name(linkAccept+"-"+d.Name)] = true
		if d.Egress == egressTCX {
			keep[bpffs.Name("tcx-"+d.Name)] = true
		} else {
			classic[d.Index] = true
		}
	}
	err := bpffs.Each(filepath.Join(a.o.PinDir, dirLinks), func(name, path string) error {
		if keep[name] {
			return nil
		}
		a.log.Info("taken off an interface that is not named any more", "link", name)
		return unpin(path)
	})
	return errors.Join(err, detachClassic(a.netlink, classicOut, classic), detachClassic(a.netlink, classicAccept, ours))
}

// unpin removes a pinned link, and with it the attachment.
func unpin(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Unpin()
}

// update switches a pinned link over to p. ok is false where there is no such
// link, or where it is attached to something that is gone.
func update(path string, p *ebpf.Program, alive func(*link.Info) bool) (info *link.Info, ok bool, err error) {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("adopt %s: %w", path, err)
	}
	defer l.Close()
	info, err = l.Info()
	if err == nil && alive(info) {
		if err = l.Update(p); err == nil {
			return info, true, nil
		}
	}
	// Its interface was deleted, perhaps made anew under the same name.
	if err := os.Remove(path); err != nil {
		return nil, false, err
	}
	return nil, false, nil
}

func pinLink(l link.Link, path string) error {
	defer l.Close()
	return bpffs.Replace(l, path)
}

func (a *Agent) linkPath(kind, iface string) string {
	return filepath.Join(a.o.PinDir, dirLinks, bpffs.Name(kind+"-"+iface))
}

func (a *Agent) attachIn(dev *net.Interface) (mode string, err error) {
	path := a.linkPath("xdp", dev.Name)
	_, ok, err := update(path, a.set.HostIn, func(i *link.Info) bool {
		return i.XDP() != nil && int(i.XDP().Ifindex) == dev.Index
	})
	if err != nil {
		return "", err
	}
	if ok {
		return xdpMode(dev.Index)
	}
	options := link.XDPOptions{Program: a.set.HostIn, Interface: dev.Index, Flags: link.XDPDriverMode}
	l, err := attachXDP(options)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, ebpf.ErrNotSupported) {
		a.log.Warn("no native XDP: packets go the slower, generic way", "interface", dev.Name, "error", err)
		options.Flags = link.XDPGenericMode
		l, err = attachXDP(options)
	}
	switch {
	case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST):
		return "", fmt.Errorf("interface %s: another XDP program is attached (%w); detach it: ip link set dev %s xdp off", dev.Name, err, dev.Name)
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ERANGE):
		return "", fmt.Errorf("interface %s: attach XDP: %w; its MTU of %d may be too large for XDP, or large receive offload is on (ethtool -K %s lro off)",
			dev.Name, err, dev.MTU, dev.Name)
	case err != nil:
		return "", fmt.Errorf("interface %s: attach XDP: %w", dev.Name, err)
	}
	if err := pinLink(l, path); err != nil {
		return "", err
	}
	return xdpMode(dev.Index)
}

// attachXDP waits for a program that was just detached to be gone: the kernel
// finishes that after the fact, also for an agent that was killed.
func attachXDP(o link.XDPOptions) (link.Link, error) {
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		l, err := link.AttachXDP(o)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return l, err
		}
	}
}

// attachOut attaches host_out behind what other programs (and other agents)
// do on the way out, so that it sees the packets as they leave.
func (a *Agent) attachOut(dev *net.Interface) (kind string, err error) {
	if a.o.classic {
		return egressClsact, attachClassic(a.netlink, classicOut, dev.Index, dev.Name, a.set.HostOut)
	}
	path := a.linkPath("tcx", dev.Name)
	_, ok, err := update(path, a.set.HostOut, func(i *link.Info) bool {
		return i.TCX() != nil && int(i.TCX().Ifindex) == dev.Index
	})
	if ok || err != nil {
		return egressTCX, err
	}
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: dev.Index, Program: a.set.HostOut, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail(),
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return egressClsact, attachClassic(a.netlink, classicOut, dev.Index, dev.Name, a.set.HostOut)
	}
	if err != nil {
		return "", fmt.Errorf("interface %s: attach to egress: %w", dev.Name, err)
	}
	return egressTCX, pinLink(l, path)
}

func (a *Agent) attachSockops() error {
	path := filepath.Join(a.o.PinDir, dirLinks, "sockops")
	_, ok, err := update(path, a.set.HostSockops, func(*link.Info) bool { return true })
	if ok || err != nil {
		return err
	}
	dir, done, err := cgroupRoot()
	if err != nil {
		return err
	}
	defer done()
	l, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: ebpf.AttachCGroupSockOps, Program: a.set.HostSockops})
	if err != nil {
		return fmt.Errorf("attach to the root of cgroup v2 (%s): %w", dir, err)
	}
	return pinLink(l, path)
}

// detach removes the pinned links, and with them the attachments.
func detach(pinDir string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	errs := []error{detachClassic(h, classicOut, nil), detachClassic(h, classicAccept, nil)}
	err = bpffs.Each(filepath.Join(pinDir, dirLinks), func(_, path string) error { return unpin(path) })
	return errors.Join(append(errs, err)...)
}
