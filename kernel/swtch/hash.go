package swtch

import (
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// Agents say which buckets their servers own connections of, by a model of
// the kernel's hash (wire.FaildBucket). If a kernel hashed otherwise, chains
// would end too early; so a switch asks its own kernel where it sends some
// flows before it relies on what agents say of buckets.

// hashTries is how many flows of each family are compared. A model that is
// wrong guesses one right with a chance of one in the number of buckets.
const hashTries = 16

// chosen asks the kernel for the bucket of a flow to vip whose source is not
// known yet (so it is hashed as 0). A look-up of this machine's own takes the
// same way through the group as a packet.
func chosen(k kernel, vip netip.Addr, protocol uint8, from, to uint16) (bucket int, err error) {
	header := make([]byte, unix.SizeofRtMsg)
	header[0] = family(vip)
	header[1] = byte(vip.BitLen())
	const (
		rtaIPProto = 27
		rtaSport   = 28
		rtaDport   = 29
	)
	a := netlink.NewAttributeEncoder()
	a.Bytes(unix.RTA_DST, vip.AsSlice())
	a.Uint8(rtaIPProto, protocol)
	a.Bytes(rtaSport, []byte{byte(from >> 8), byte(from)})
	a.Bytes(rtaDport, []byte{byte(to >> 8), byte(to)})
	replies, err := k.ask(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETROUTE, Flags: netlink.Request},
		Data:   append(header, encoded(a)...),
	})
	if err != nil {
		return 0, err
	}
	for _, m := range replies {
		r, err := parseRoute(m)
		if err != nil {
			return 0, err
		}
		if bucket, ok := bucketOf(r.gateway); ok {
			return bucket, nil
		}
	}
	return 0, fmt.Errorf("the route to %s leads through no virtual nexthop", vip)
}

// verifyHash compares the model with the kernel. It is done once routes
// stand; an error says that what agents say of buckets is not to be used.
func verifyHash(k kernel, vips []netip.Addr, seed uint32, buckets int) error {
	done := map[bool]bool{}
	for _, vip := range vips {
		if done[vip.Is6()] {
			continue
		}
		done[vip.Is6()] = true
		nobody := netip.IPv4Unspecified()
		if vip.Is6() {
			nobody = netip.IPv6Unspecified()
		}
		for i := range hashTries {
			from, to := uint16(1024+4099*i), uint16(443-i)
			is, err := chosen(k, vip, wire.ProtoTCP, from, to)
			if err != nil {
				return err
			}
			flow := [2]netip.AddrPort{netip.AddrPortFrom(nobody, from), netip.AddrPortFrom(vip, to)}
			want := wire.FaildBucket(seed, flow[0], flow[1], wire.ProtoTCP, buckets)
			if vip.Is6() {
				// IPv6 does not mix once more what it looks up for itself.
				want = wire.FaildMember(wire.FaildFlowHash(seed, flow[0], flow[1], wire.ProtoTCP), buckets)
			}
			if is != want {
				return fmt.Errorf("this kernel hashes otherwise than the model: a flow from port %d to [%s]:%d goes to bucket %d, not %d", from, vip, to, is, want)
			}
		}
	}
	return nil
}
