package host

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/kernel"
)

// lookEvery is how long a program can be detached, and how long nobody may listen for a
// VIP before balancers hear of it. While the program that stamps cookies is off, what
// the server sends goes out unstamped, and a client that takes such a timestamp for the
// newest may never hear its server again. Both are looked at together: of a look that
// finds nothing, most is that a thread wakes up.
const lookEvery = 25 * time.Millisecond

// look looks for both until ctx ends.
func (a *Agent) look(ctx context.Context, lost chan<- struct{}) {
	for ctx.Err() == nil {
		time.Sleep(lookEvery) // a timer's channel would wake twice
		if a.detached() {
			select {
			case lost <- struct{}{}:
			default:
			}
		}
		a.listeners.lookInTime()
	}
}

// detached says whether somebody has detached a program, and nothing else is the
// matter that would keep it off. While the tables change that is seen at the next look:
// who listens does not wait for it.
func (a *Agent) detached() bool {
	if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	if len(a.astray) > 0 {
		return false
	}
	return a.folder.Detached()
}

// tend looks once, after pins as well if so, and puts back.
func (a *Agent) tend(pins bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.loaded == nil {
		return // closed
	}
	a.astray.Look(a.log, func(note func(what string, err error)) {
		if pins {
			a.unpinned = a.folder.Keep(a.loaded, a.folder.Dir)
		}
		note("pins", a.unpinned)
		note("namespace", kernel.InNamespace(a.ns, func() error {
			note(linkSockops, a.attachSockops())
			for i := range a.devices {
				note("interface "+a.devices[i].Name, a.tendDevice(&a.devices[i]))
			}
			return nil
		}))
		if a.accepting {
			note("frames for slots", a.accept())
		}
		a.tendVIPs(note)
	})
}

// tendDevice puts back what is missing on a device, which may have been deleted
// and made again.
func (a *Agent) tendDevice(d *Interface) error {
	dev, err := kernel.Device(d.Name)
	if err != nil {
		return err
	}
	if dev == nil {
		d.Index, d.Mode, d.Egress = 0, kernel.Off, kernel.Off
		return fmt.Errorf("interface %s is gone: packets for VIPs neither come in nor leave there; make it again, or name others under servers[].interfaces and restart", d.Name)
	}
	return a.attachTo(d, dev)
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
