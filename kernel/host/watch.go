package host

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/kernel"
)

// Anybody with the rights may detach a program, remove a pin, delete a device or
// take addresses off the loopback (a restart of the network does), and most of
// that nobody is told of. So it is looked at: what is missing is put back from
// what this process holds open, what stands in the way of it is told.

// tendEvery is how long something can be missing before it is put back.
const tendEvery = 500 * time.Millisecond

// detachedEvery is how long a program can be detached. While the one that stamps
// cookies is off, what the server sends goes out unstamped, and a client that takes
// such a timestamp for the newest may never hear its server again: so this, which
// takes a system call a program, is looked at more often than the rest.
const detachedEvery = 20 * time.Millisecond

// detached says whether somebody has detached a program, and nothing else is the
// matter that would keep it off.
func (a *Agent) detached() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.astray) > 0 {
		return false
	}
	for _, l := range a.links {
		if at, err := kernel.Where(l); err == nil && at == 0 {
			return true
		}
	}
	return false
}

// tend looks once, and puts back.
func (a *Agent) tend() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.links == nil {
		return // closed
	}
	astray := map[string]string{}
	note := func(what string, err error) {
		if err == nil {
			return
		}
		astray[what] = err.Error()
		if a.astray[what] != err.Error() {
			a.log.Error("not as it should be; trying on", "what", what, "error", err)
		}
	}
	note("pins", a.repin())
	err := kernel.InNamespace(a.ns, func() error {
		note(linkSockops, a.attachSockops())
		for i := range a.devices {
			note("interface "+a.devices[i].Name, a.tendDevice(&a.devices[i]))
		}
		return nil
	})
	note("namespace", err)
	if a.accepting {
		note("frames for slots", a.accept())
	}
	a.tendVIPs(note)
	a.astray = astray
}

// tendDevice puts back what is missing on a device, which may have been deleted
// and made again.
func (a *Agent) tendDevice(d *Interface) error {
	dev, err := kernel.Device(d.Name)
	if err != nil {
		return err
	}
	if dev == nil {
		d.Index, d.Mode, d.Egress = 0, off, off
		return fmt.Errorf("interface %s is gone: packets for VIPs neither come in nor leave there; make it again, or name others under servers[].interfaces and restart", d.Name)
	}
	return a.attachTo(d, dev)
}

// off is where a program is not.
const off = "off"

// repin makes the pins of maps and programs that somebody removed.
func (a *Agent) repin() (err error) {
	if a.lock, err = kernel.Hold(a.lock, a.o.PinDir); err != nil {
		return err
	}
	for name, m := range a.maps() {
		if err := kernel.Keep(m, filepath.Join(a.o.PinDir, dirMaps, name), a.log); err != nil {
			return err
		}
	}
	for name, p := range a.programs() {
		if err := kernel.Keep(p, filepath.Join(a.o.PinDir, dirPrograms, name), a.log); err != nil {
			return err
		}
	}
	return nil
}

// tendVIPs puts VIPs back on the loopback that the agent had put there. One that
// somebody else had, and took away, is told: perhaps he meant it.
func (a *Agent) tendVIPs(note func(what string, err error)) {
	lo, err := a.netlink.LinkByName(loopback)
	var list []netlink.Addr
	if err == nil {
		list, err = a.netlink.AddrList(lo, netlink.FAMILY_ALL)
	}
	if err != nil {
		note("loopback", err)
		return
	}
	there := map[netip.Addr]bool{}
	for _, l := range list {
		if at, ok := netip.AddrFromSlice(l.IP); ok {
			there[at.Unmap()] = true
		}
	}
	for vip := range a.table.VIPs() {
		if there[vip] {
			continue
		}
		what := "VIP " + vip.String()
		var one uint8
		if a.set.HostAdded.Lookup(vip.As16(), &one) != nil {
			note(what, fmt.Errorf("VIP %s is not on the loopback any more, where it stood before the agent came: connections to it are refused; ip address add %s dev lo, or restart the agent, which adds it",
				vip, netip.PrefixFrom(vip, vip.BitLen())))
			continue
		}
		if err := a.putVIP(lo, vip); err != nil {
			note(what, err)
			continue
		}
		a.log.Warn("a VIP was not on the loopback any more, and is put back", "vip", vip)
	}
}
