package topology

import (
	"cmp"
	"fmt"
)

// LeafSpine joins every leaf to every spine; hosts are those of each leaf. At
// most 64 spines. Leaves' ports upwards are 0 to spines-1.
func LeafSpine(leaves, spines, hosts int) (*Fabric, error) {
	if err := cmp.Or(
		within("leaf-spine", "spines", spines, 1, maxRadix),
		within("leaf-spine", "leaves", leaves, 1, 4096),
		within("leaf-spine", "hosts", hosts, 1, 1024),
	); err != nil {
		return nil, err
	}
	d := newDrawing(leaves*(hosts+1)+spines, leaves*(hosts+spines))
	for h := range leaves * hosts {
		d.node(fmt.Sprintf("host-%d", h), true)
	}
	leaf := len(d.fabric.Nodes)
	for l := range leaves {
		d.node(fmt.Sprintf("leaf-%d", l), false)
	}
	spine := len(d.fabric.Nodes)
	for s := range spines {
		d.node(fmt.Sprintf("spine-%d", s), false)
	}
	for h := range leaves * hosts {
		d.link(h, unnumbered, leaf+h/hosts, unnumbered)
	}
	for l := range leaves {
		for s := range spines {
			d.link(leaf+l, s, spine+s, unnumbered)
		}
	}
	return d.done(), nil
}

// VL2 is the folded Clos of VL2 (Greenberg et al., SIGCOMM 2009, §4.1): down is
// the ports of an aggregation switch (D_A there), half of them upwards, mid
// those of an intermediate switch (D_I). So there are down/2 intermediate and
// mid aggregation switches, each joined to each, and down·mid/4 top-of-rack
// switches with hosts each (20 in VL2) and two links upwards. The n-th
// top-of-rack switch is joined to aggregation switches 2n and 2n+1, modulo mid.
//
// Both even. Top-of-rack switches' ports upwards are 0 and 1; aggregation
// switches' are 0 to down/2-1; an intermediate switch's number is that of the
// aggregation switch, as two of them lead to each rack.
func VL2(down, mid, hosts int) (*Fabric, error) {
	if err := cmp.Or(
		within("vl2", "ports of an aggregation switch", down, 2, 2*maxRadix),
		within("vl2", "ports of an intermediate switch", mid, 2, maxRadix),
		within("vl2", "hosts of a rack", hosts, 1, 1024),
	); err != nil {
		return nil, err
	}
	if down%2 != 0 || mid%2 != 0 {
		return nil, fmt.Errorf("vl2: switches of %d and %d ports: both must be even: half of an aggregation switch's ports lead up, and racks are joined to pairs of them", down, mid)
	}
	racks, intermediates := down*mid/4, down/2
	if racks == 0 {
		return nil, fmt.Errorf("vl2: switches of %d and %d ports leave no room for a rack; take larger ones", down, mid)
	}
	d := newDrawing(racks*(hosts+1)+mid+intermediates, racks*(hosts+2)+mid*intermediates)
	for h := range racks * hosts {
		d.node(fmt.Sprintf("host-%d", h), true)
	}
	rack := len(d.fabric.Nodes)
	for r := range racks {
		d.node(fmt.Sprintf("rack-%d", r), false)
	}
	agg := len(d.fabric.Nodes)
	for a := range mid {
		d.node(fmt.Sprintf("aggregation-%d", a), false)
	}
	intermediate := len(d.fabric.Nodes)
	for i := range intermediates {
		d.node(fmt.Sprintf("intermediate-%d", i), false)
	}
	for h := range racks * hosts {
		d.link(h, unnumbered, rack+h/hosts, unnumbered)
	}
	for r := range racks {
		for up := range 2 {
			d.link(rack+r, up, agg+(2*r+up)%mid, unnumbered)
		}
	}
	for a := range mid {
		for i := range intermediates {
			d.link(agg+a, i, intermediate+i, a)
		}
	}
	return d.done(), nil
}
