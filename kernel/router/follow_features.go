package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/ethtool"
)

// netdev opens the kernel's generic netlink family of network devices.
func (k *rtnetlink) netdev() (conn *genetlink.Conn, family genetlink.Family, err error) {
	if conn, err = genetlink.Dial(&netlink.Config{NetNS: k.Namespace()}); err != nil {
		return nil, family, err
	}
	if family, err = conn.GetFamily("netdev"); err == nil {
		return conn, family, nil
	}
	conn.Close()
	return nil, family, fmt.Errorf("what devices can do: %w; Linux %s or later is needed", err, kernel.MinKernel)
}

// features are what devices can do and do by themselves, by their indices.
type features struct {
	// redirects are devices that take frames from XDP.
	redirects map[int]bool
	// strips are devices with VLANs on them that take the tags off frames, so
	// that XDP cannot tell whose they are.
	strips map[int]bool
	// unfinished are veths that leave checksums of what is sent to the receiver.
	unfinished map[int]bool
}

func (f features) equal(g features) bool {
	return maps.Equal(f.redirects, g.redirects) && maps.Equal(f.strips, g.strips) && maps.Equal(f.unfinished, g.unfinished)
}

func (p *picture) readFeatures(k *rtnetlink) error {
	p.readStrips(k)
	p.readUnfinished(k)
	return p.readRedirects(k)
}

// readStrips asks devices with VLANs on them. A veth is none of these: its tags
// are where the other end left them. What cannot be asked does not strip.
func (p *picture) readStrips(k *rtnetlink) {
	strips := map[int]bool{}
	for _, l := range p.links {
		physical, vlan, ok := p.ethernet(l)
		if !ok || vlan == 0 || physical.kind == "veth" {
			continue
		}
		if flags, err := k.offloads.Get(physical.name, ethtool.Flags); err == nil && flags&ethtool.FlagRXVLAN != 0 {
			strips[physical.index] = true
		}
	}
	p.strips = strips
}

// readUnfinished asks veths. What cannot be asked finishes them.
func (p *picture) readUnfinished(k *rtnetlink) {
	unfinished := map[int]bool{}
	for _, l := range p.links {
		if l.kind != "veth" {
			continue
		}
		if on, err := k.offloads.Get(l.name, ethtool.TXChecksum); err == nil && on != 0 {
			unfinished[l.index] = true
		}
	}
	p.unfinished = unfinished
}

// unfinished warns of devices whose packets lose their checksums on the way
// through the program.
func (f *Follower) unfinished(devices []Device) []string {
	names := map[string]bool{}
	for _, d := range devices {
		if f.picture.unfinished[d.Ifindex] {
			names[f.picture.links[d.Ifindex].name] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	return []string{fmt.Sprintf("veths with tx checksum offload: %s; packets that come in there from senders on this machine have no checksums yet, are sent on without and are lost at their receivers: ethtool -K DEV tx off for each, and at its other end", list)}
}

// readRedirects asks which devices take frames from XDP (ndo_xdp_xmit): the
// others lose them without a word.
func (p *picture) readRedirects(k *rtnetlink) error {
	const (
		devGet      = 1 // NETDEV_CMD_DEV_GET
		devIfindex  = 1 // NETDEV_A_DEV_IFINDEX
		devFeatures = 3 // NETDEV_A_DEV_XDP_FEATURES
		ndoXmit     = 4 // NETDEV_XDP_ACT_NDO_XMIT
	)
	conn, family, err := k.netdev()
	if err != nil {
		return err
	}
	defer conn.Close()
	replies, err := conn.Execute(genetlink.Message{Header: genetlink.Header{Command: devGet, Version: family.Version}},
		family.ID, netlink.Request|netlink.Dump)
	if err != nil {
		return err
	}
	redirects := make(map[int]bool, len(replies))
	for _, m := range replies {
		a, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return err
		}
		device, features := 0, uint64(0)
		for a.Next() {
			switch a.Type() {
			case devIfindex:
				device = int(a.Uint32())
			case devFeatures:
				features = a.Uint64()
			}
		}
		if a.Err() != nil {
			return a.Err()
		}
		redirects[device] = features&ndoXmit != 0
	}
	p.redirects = redirects
	return nil
}

// takesRedirects: frames that XDP sends out by the device are not lost.
func (p *picture) takesRedirects(device int) bool { return p.redirects[device] }

// watchFeatures calls changed when the features of a device have, until ctx
// ends: of a veth they do when its other end gets an XDP program.
func (k *rtnetlink) watchFeatures(ctx context.Context, changed func()) error {
	conn, family, err := k.netdev()
	if err != nil {
		return err
	}
	for _, group := range family.Groups {
		if group.Name == "mgmt" {
			err = errors.Join(err, conn.JoinGroup(group.ID))
		}
	}
	if err != nil {
		conn.Close()
		return err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		for ctx.Err() == nil {
			// What is lost, or cannot be read, is a change, too.
			_, _, err := conn.Receive()
			if ctx.Err() != nil || errors.Is(err, unix.EBADF) {
				return
			}
			changed()
		}
	}()
	return nil
}
