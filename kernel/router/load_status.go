package router

import (
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/kernel"
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
	s := PlaneStatus{PinDir: p.PinDir(), Adopted: p.adopted, Running: p.held != nil, Astray: strings.Join(p.astray.List(), "\n")}
	for _, index := range slices.Sorted(maps.Keys(p.held)) {
		d := deviceStatus(index)
		if !p.folder.There(linkPin(index), index) {
			d.Mode = kernel.Off
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
	dev, err := netlink.LinkByIndex(index)
	if err != nil {
		return DeviceStatus{Ifindex: index, Mode: kernel.Off}
	}
	return DeviceStatus{Ifindex: index, Name: dev.Attrs().Name, Mode: kernel.XDPMode(dev)}
}
