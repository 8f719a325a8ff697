package swtch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"

	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// What others do, to compare with, and how fast repointing is. All of it works
// in the caller's network namespace and is done when the call returns.

// Attributes of a resilient group (linux/nexthop.h).
const (
	nhaResGroup             = 12
	nhaResGroupBuckets      = 1
	nhaResGroupIdleTimer    = 2
	groupTypeResilient      = 1
	resilientIdleClockTicks = 100 // a clock tick is 10 ms here, whatever HZ

	// An operator's own routes and nexthops (RTPROT_STATIC): with Protocol, a
	// switch beside them would take them away.
	protocolStatic = 4
)

// AddGroup makes what a plain router has: a nexthop id+1, id+2, ... for each
// gateway on the device, a group id of them and a route to prefix through it.
// With resilientBuckets above 0 the group is a resilient one, whose buckets
// move when they were idle for a second.
func AddGroup(id uint32, prefix netip.Prefix, device string, gateways []netip.Addr, resilientBuckets int) error {
	k, err := openKernel()
	if err != nil {
		return err
	}
	defer k.Close()
	l, err := readLinks(k, device)
	if err != nil {
		return err
	}
	if l.bridge == 0 {
		return fmt.Errorf("device %s does not exist", device)
	}
	members := make([]uint32, len(gateways))
	for i, gateway := range gateways {
		members[i] = id + 1 + uint32(i)
		m := nexthopMessage(key{kind: kindNexthop, id: members[i]}, value{device: l.bridge, gateway: gateway}, false)
		m.Data[2] = protocolStatic
		m.Header.Flags = netlink.Request | netlink.Create | netlink.Excl
		if err := k.execute([]netlink.Message{m}); err != nil {
			return fmt.Errorf("nexthop %d via %s dev %s: %w", members[i], gateway, device, err)
		}
	}
	if err := k.execute([]netlink.Message{group(id, members, resilientBuckets, netlink.Create|netlink.Excl)}); err != nil {
		return fmt.Errorf("nexthop group %d of %d: %w", id, len(members), err)
	}
	m := routeMessage(key{kind: kindRoute, addr: prefix.Addr(), table: mainTable}, value{group: id}, false)
	m.Data[1] = byte(prefix.Bits())
	m.Data[5] = protocolStatic
	m.Header.Flags = netlink.Request | netlink.Create | netlink.Excl
	if err := k.execute([]netlink.Message{m}); err != nil {
		return fmt.Errorf("route %s nhid %d: %w", prefix, id, err)
	}
	return nil
}

func group(id uint32, members []uint32, resilientBuckets int, flags netlink.HeaderFlags) netlink.Message {
	var ids []byte
	for _, m := range members {
		ids = binary.NativeEndian.AppendUint32(ids, m)
	}
	m := nexthopMessage(key{kind: kindGroup, id: id}, value{members: string(ids)}, false)
	m.Data[2] = protocolStatic
	m.Header.Flags = netlink.Request | flags
	if resilientBuckets > 0 {
		a := netlink.NewAttributeEncoder()
		a.Uint16(nhaGroupType, groupTypeResilient)
		a.Nested(nhaResGroup, func(a *netlink.AttributeEncoder) error {
			a.Uint16(nhaResGroupBuckets, uint16(resilientBuckets))
			a.Uint32(nhaResGroupIdleTimer, resilientIdleClockTicks)
			return nil
		})
		m.Data = append(m.Data, encoded(a)...)
	}
	return m
}

// RemoveMember takes the nexthop via gateway out of the group that AddGroup
// made, as a router does whose neighbour is gone.
func RemoveMember(id uint32, gateway netip.Addr) error {
	k, err := openKernel()
	if err != nil {
		return err
	}
	defer k.Close()
	var f found
	if err := f.readGroup(k, id); err != nil {
		return err
	}
	group, ok := f.objects[kindGroup][key{kind: kindGroup, id: id}]
	if !ok {
		return fmt.Errorf("there is no nexthop group %d", id)
	}
	for i := 0; i < len(group.members); i += 4 {
		member := binary.NativeEndian.Uint32([]byte(group.members[i:]))
		var one found
		if err := one.readGroup(k, member); err != nil {
			return err
		}
		if one.objects[kindGroup][key{kind: kindGroup, id: member}].gateway != gateway {
			continue
		}
		m := nexthopMessage(key{kind: kindNexthop, id: member}, value{}, true)
		m.Header.Flags = netlink.Request
		return k.execute([]netlink.Message{m})
	}
	return fmt.Errorf("nexthop group %d has no member via %s", id, gateway)
}

// MeasureRepoint makes as many permanent neighbours on the device as a switch
// of IPv4 has nexthops, points all of them to other servers, rounds times, and
// takes them away again. It returns how long each round took, from the first
// message's making to the kernel's acknowledgement of the last. It refuses
// where a switch is at work on the device.
func MeasureRepoint(device string, nexthops, rounds int) (took []time.Duration, err error) {
	if nexthops < 1 || nexthops > vip.MaxNexthops {
		return nil, fmt.Errorf("nexthops: %d, but a group of the kernel has 1 to %d", nexthops, vip.MaxNexthops)
	}
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	l, err := readLinks(k, device)
	if err != nil {
		return nil, err
	}
	if l.bridge == 0 {
		return nil, fmt.Errorf("device %s does not exist", device)
	}
	f, err := read(k, l.bridge, nil, AnnounceTable)
	if err != nil {
		return nil, err
	}
	if len(f.objects[kindNeighbour]) > 0 {
		return nil, fmt.Errorf("device %s has %d neighbours at virtual nexthops' addresses: measure where no switch is at work", device, len(f.objects[kindNeighbour]))
	}
	have := objects{}
	defer func() {
		err = errors.Join(err, k.execute(messages(difference(have, objects{}))))
	}()
	for round := range rounds + 1 {
		want := objects{}
		for b := range nexthops {
			mac, encodeErr := wire.EncodeFaild(wire.Faild{Kind: wire.FaildPass, Current: uint16((b + round) % 64), Previous: [3]uint16{uint16(64 + (b+round)%7), wire.FaildNone, wire.FaildNone}})
			if encodeErr != nil {
				return nil, encodeErr
			}
			want.put(key{kind: kindNeighbour, addr: hopAddress(false, b)}, value{device: l.bridge, mac: mac})
		}
		start := time.Now()
		if err := k.execute(messages(difference(have, want))); err != nil {
			return nil, err
		}
		if have = want; round > 0 { // the first one makes them
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}
