package wire

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/dchest/siphash"
)

// FaildBucket is the bucket that a Linux switch of scheme faild puts a flow
// in: the member that its ECMP group, of as many members with equal weights,
// chooses with net.ipv4.fib_multipath_hash_policy and net.ipv6's at 3, the
// fields at 0x37 and fib_multipath_hash_seed at seed. With it a server can say
// which buckets it has connections of.
//
// It follows Linux 6.11 to 6.18: SipHash-2-4 of struct flow_keys, whose
// addresses and ports are ordered so that both directions are one, mixed once
// more by jhash, 31 bits of which are compared with the members' bounds. No
// kernel promises to stay so: fabric compares before it relies on it. client
// and vip must be of one family.
func FaildBucket(seed uint32, client, vip netip.AddrPort, protocol uint8, buckets int) int {
	return FaildMember(jhash2(FaildFlowHash(seed, client, vip, protocol), 0), buckets)
}

// FaildFlowHash is the first half of FaildBucket: the kernel's hash of a flow
// as it is where no packet is at hand (IPv6's look-ups of this machine's own).
func FaildFlowHash(seed uint32, client, vip netip.AddrPort, protocol uint8) uint32 {
	var keys [72]byte
	n := flowKeys(&keys, client, vip, protocol)
	// The seed stands in both halves of both words of the key.
	k := uint64(seed)<<32 | uint64(seed)
	return max(uint32(siphash.Hash(k, k, keys[:n])), 1)
}

// FaildMember is the member of an ECMP group, of as many with equal weights,
// that has a hash. Member i takes those whose upper 31 bits are at most
// round((i+1) << 31 / buckets) - 1.
func FaildMember(hash uint32, buckets int) int {
	h := uint64(hash >> 1)
	i := max(int(h*uint64(buckets)>>31)-1, 0) // the first that it can be
	for i < buckets-1 && h > bound(i, buckets) {
		i++
	}
	return i
}

func bound(i, buckets int) uint64 {
	return (uint64(i+1)<<31+uint64(buckets)/2)/uint64(buckets) - 1
}

// flowKeys is struct flow_keys from its field basic on: protocol at 2, ports
// at 28, addresses at 36, all else 0. n is how much of it is hashed for the
// family: four octets behind the addresses, too, by which the struct's size is
// rounded up.
func flowKeys(keys *[72]byte, client, vip netip.AddrPort, protocol uint8) (n int) {
	keys[2] = protocol
	var ports [2][2]byte
	binary.BigEndian.PutUint16(ports[0][:], client.Port())
	binary.BigEndian.PutUint16(ports[1][:], vip.Port())
	// Compared as the machine reads them.
	if binary.NativeEndian.Uint16(ports[1][:]) < binary.NativeEndian.Uint16(ports[0][:]) {
		ports[0], ports[1] = ports[1], ports[0]
	}
	copy(keys[28:], ports[0][:])
	copy(keys[30:], ports[1][:])
	src, dst := client.Addr().Unmap().AsSlice(), vip.Addr().Unmap().AsSlice()
	swap := bytes.Compare(dst, src) < 0
	if len(src) == 4 {
		swap = binary.NativeEndian.Uint32(dst) < binary.NativeEndian.Uint32(src)
	}
	if swap {
		src, dst = dst, src
	}
	copy(keys[36:], src)
	copy(keys[36+len(src):], dst)
	return 40 + 2*len(src)
}

// jhash2 is the kernel's jhash_2words with initval 0 (Bob Jenkins' lookup3).
func jhash2(a, b uint32) uint32 {
	const initial = 0xdeadbeef + 2<<2
	a, b, c := a+initial, b+initial, uint32(initial)
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	return (c ^ b) - bits.RotateLeft32(b, 24)
}
