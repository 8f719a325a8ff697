package router

import (
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// PlaneStatus is how a router's program stands.
type PlaneStatus struct {
	PinDir string
	// Adopted: Open found maps of an earlier process and goes on with them.
	Adopted bool
	// Running: the first Apply is done.
	Running bool
	// Devices that the program is attached to, by index.
	Devices []DeviceStatus
	Limits  []Limit
	Astray  string // what could not be put back after somebody took it away
}

// DeviceStatus is how the program sits on a device.
type DeviceStatus struct {
	Ifindex int
	Name    string // "": it is gone
	Mode    string // of XDP: native, generic or off
}

// Limit is how full a map is.
type Limit struct {
	Name        string // inputs, routes, groups, hops
	Used, Limit uint64
}

// Status reads how the program stands.
func (p *Plane) Status() PlaneStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PlaneStatus{PinDir: p.PinDir(), Adopted: p.adopted, Running: p.links != nil, Astray: p.astray}
	for _, index := range slices.Sorted(maps.Keys(p.links)) {
		d := deviceStatus(index)
		if on, err := linkOf(p.links[index]); err == nil && on != index {
			d.Mode = "off"
		}
		s.Devices = append(s.Devices, d)
	}
	if p.state != nil {
		s.Limits = []Limit{{"inputs", uint64(len(p.state.inputs)), mostDevices}, {"routes", uint64(len(p.state.routes)), mostRoutes},
			{"groups", uint64(len(p.state.groups)), mostGroups}, {"hops", uint64(len(p.state.hops)), mostHops}}
	}
	return s
}

func deviceStatus(index int) DeviceStatus {
	d := DeviceStatus{Ifindex: index, Mode: "off"}
	dev, err := netlink.LinkByIndex(index)
	if err != nil {
		return d
	}
	d.Name = dev.Attrs().Name
	if x := dev.Attrs().Xdp; x != nil && x.Attached {
		d.Mode = "generic"
		if x.AttachMode == nl.XDP_ATTACHED_DRV || x.AttachMode == nl.XDP_ATTACHED_HW {
			d.Mode = "native"
		}
	}
	return d
}
