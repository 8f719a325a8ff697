package fabrics

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/fabric/topology"
)

// plan fills in what the topology leaves open: names, devices, addresses.
func (f *Fabric) plan() {
	t := &f.topology
	if t.Selector.Key == [16]byte{} {
		_, _ = rand.Read(t.Selector.Key[:]) // never fails
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		n.Name = f.Name + "-" + n.Name
		n.TTL = cmp.Or(n.TTL, 64)
		if !n.Host && n.API == "" {
			n.API = "unix:" + f.Socket(n.Name)
		}
		if len(n.Addresses) == 0 {
			n.Addresses = []netip.Addr{numbered4(91, i), numbered6(0x91, i)}
		}
	}
	cards := make([]int, len(t.Nodes))
	f.devices = make([][2]string, len(t.Links))
	f.cut, f.wired = make([]bool, len(t.Links)), make([]bool, len(t.Links))
	f.routed = make([]map[netip.Prefix][]way, len(t.Nodes))
	for i := range t.Links {
		l := &t.Links[i]
		f.wired[i] = f.Wires || l.Capacity > 0
		for side := range l.Ends {
			e := &l.Ends[side]
			e.Device = cmp.Or(e.Device, fmt.Sprint("eth", cards[e.Node]))
			cards[e.Node]++
			f.devices[i][side] = e.Device
			if !e.Address.IsValid() {
				e.Address = numbered4(90, 2*i+side)
			}
		}
	}
}

// numbered4 and numbered6 are the n-th (from 0) addresses of 10.NET.0.0/16 and
// fdNET::/64.
func numbered4(net byte, n int) netip.Addr {
	n += 2
	return netip.AddrFrom4([4]byte{10, net, byte(n >> 8), byte(n)})
}

func numbered6(net byte, n int) netip.Addr {
	n += 2
	return netip.AddrFrom16([16]byte{0: 0xfd, 1: net, 14: byte(n >> 8), 15: byte(n)})
}

// addresses of a link's end: the one that the file names and one of the other
// family, by the link's number.
func (f *Fabric) addresses(link, side int) (four, six netip.Addr) {
	own := f.topology.Links[link].Ends[side].Address
	if own.Is4() {
		return own, numbered6(0x90, 2*link+side)
	}
	return numbered4(90, 2*link+side), own
}

// behind are the links by which a host's address is reached: the one on which
// it stands, or all of the host's.
func behind(t *topology.Fabric, host int, a netip.Addr) []int {
	var all []int
	for i, l := range t.Links {
		for _, e := range l.Ends {
			if e.Node != host {
				continue
			}
			if e.Address == a {
				return []int{i}
			}
			all = append(all, i)
		}
	}
	return all
}

// bound tells whether a host's address stands on one of its links.
func bound(t *topology.Fabric, host int, a netip.Addr) bool {
	for _, l := range t.Links {
		if slices.ContainsFunc(l.Ends[:], func(e topology.End) bool { return e.Node == host && e.Address == a }) {
			return true
		}
	}
	return false
}
