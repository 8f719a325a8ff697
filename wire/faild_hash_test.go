package wire

import (
	"net/netip"
	"testing"

	"github.com/dchest/siphash"
	"pgregory.net/rapid"
)

// The vector of SipHash's authors: key 00 01 ... 0f, message 00 01 ... 0e.
func TestSipHash24(t *testing.T) {
	var message [15]byte
	for i := range message {
		message[i] = byte(i)
	}
	if h := siphash.Hash(0x0706050403020100, 0x0f0e0d0c0b0a0908, message[:]); h != 0xa129ca6149be45e5 {
		t.Fatalf("%#x", h)
	}
}

// fabric's tests hold FaildBucket against the kernel. Here: both directions of
// a flow are one, and members have hashes in order, alike to within one.
func TestFaildBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "ipv4")))
		})
		if rapid.Bool().Draw(t, "six") {
			address = rapid.Custom(func(t *rapid.T) netip.Addr {
				return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "ipv6")))
			})
		}
		// One that is IPv4 in IPv6's form is hashed as IPv4.
		a, b := address.Draw(t, "a"), address.Draw(t, "b")
		client := netip.AddrPortFrom(a.Unmap(), rapid.Uint16().Draw(t, "client port"))
		vip := netip.AddrPortFrom(b.Unmap(), rapid.Uint16().Draw(t, "port"))
		if client.Addr().Is4() != vip.Addr().Is4() {
			t.Skip("two families")
		}
		seed, n := rapid.Uint32Min(1).Draw(t, "seed"), rapid.IntRange(1, 8191).Draw(t, "buckets")
		bucket := FaildBucket(seed, client, vip, ProtoTCP, n)
		if back := FaildBucket(seed, vip, client, ProtoTCP, n); bucket < 0 || bucket >= n || back != bucket {
			t.Fatalf("bucket %d of %d, and %d on the way back", bucket, n, back)
		}
	})
}

func TestFaildMember(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8191).Draw(t, "buckets")
		h := rapid.Uint32().Draw(t, "hash")
		m := FaildMember(h, n)
		// As the kernel looks: the first whose bound is not below.
		want := 0
		for want < n-1 && uint64(h>>1) > bound(want, n) {
			want++
		}
		if m != want {
			t.Fatalf("member %d, the kernel would find %d", m, want)
		}
	})
	for _, n := range []int{1, 2, 3, 256, 8191} {
		if first, last := FaildMember(0, n), FaildMember(1<<32-1, n); first != 0 || last != n-1 {
			t.Errorf("%d members: the smallest hash is %d's, the largest %d's", n, first, last)
		}
	}
}
