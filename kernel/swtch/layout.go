package swtch

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// Where things stand: nexthop ids and the addresses of virtual nexthops.

// ListedNexthops is how many members a group may have so that iproute2 and
// others can list all nexthops: they ask with a buffer of one page, and a
// group that does not fit ends the listing with an error (tried with iproute2
// 6.1; single nexthops, `ip nexthop show id N`, can always be shown).
const ListedNexthops = 448

// Ids: the groups of IPv4 and IPv6, then a range of 8,192 for each family's
// virtual nexthops.
const (
	groupID4   = FirstID
	groupID6   = FirstID + 1
	firstHop4  = FirstID + 0x2000
	firstHop6  = FirstID + 0x4000
	behindLast = FirstID + 0x6000
)

// mainTable is where the routes stand that packets go by.
const mainTable = unix.RT_TABLE_MAIN

// mine: the id is in the range that is ours.
func mine(id uint32) bool { return id >= FirstID && id < behindLast }

func groupID(six bool) uint32 {
	if six {
		return groupID6
	}
	return groupID4
}

func hopID(six bool, bucket int) uint32 {
	if six {
		return firstHop6 + uint32(bucket)
	}
	return firstHop4 + uint32(bucket)
}

// hopAddress is the address of a bucket's virtual nexthop: link-local, so that
// it means nothing but on the bridge. IPv4: from 169.254.192.0 on, away from
// what RFC 3927 reserves and from clouds' metadata; IPv6: fe80::fa1d:0:0:n.
func hopAddress(six bool, bucket int) netip.Addr {
	if six {
		a := [16]byte{0: 0xfe, 1: 0x80, 8: 0xfa, 9: 0x1d}
		binary.BigEndian.PutUint16(a[14:], uint16(bucket))
		return netip.AddrFrom16(a)
	}
	return netip.AddrFrom4([4]byte{169, 254, 192 + byte(bucket>>8), byte(bucket)})
}

// bucketOf is the bucket whose virtual nexthop has that address.
func bucketOf(a netip.Addr) (bucket int, ok bool) {
	b := a.AsSlice()
	if len(b) < 4 {
		return 0, false
	}
	bucket = int(binary.BigEndian.Uint16(b[len(b)-2:]))
	if a.Is4() {
		bucket -= 192 << 8
	}
	return bucket, bucket >= 0 && bucket < vip.MaxNexthops && hopAddress(a.Is6(), bucket) == a
}

// faildMAC: the MAC is of our making.
func faildMAC(mac wire.MAC) bool {
	_, ok, err := wire.DecodeFaild(mac)
	return ok && err == nil
}
