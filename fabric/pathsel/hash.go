package pathsel

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// The two hashes: H, which the selector's digits are shifted by (paper,
// equation 3), and each router's own, for what nobody steers (algorithm 1,
// last line).
//
// The paper's H is of the uncontrollable fields alone, so that all digits are
// shifted alike. Ours takes the time to live, too. Otherwise flows with the
// same ports between many pairs of hosts would use only radix of the
// radix^routers ways through a row of routers, and two routers a length apart,
// which read the same digit, would send them the same way.
//
// Both begin with the same sum over 32-bit words of the packet, each times a
// secret 64-bit number: multilinear hashing, whose upper 32 bits are strongly
// universal (Dietzfelbinger, "Universal hashing and k-wise independent random
// variables via integer arithmetic without primes", 1996). So any two flows
// meet with a chance of one in N whatever their addresses look like, and
// counts vary as little as by truly random choice. The products do not wait
// for one another, which is what makes it cheap.
//
// But universal is not even under each key: a sum is linear, so addresses that
// count up go round the ports in equal steps, and under some keys in time with
// them. Hence two xorshifts and multiplications after it. One is too few: of
// addresses in a row the sum's lower half changes in few bits, the xorshift
// leaves it nearly linear, and what a product makes of that is, too. Under one
// key in 300 some of 16 ports got a tenth more than others (keys_test.go).
// Nor can who observes some flows simply compute others.

// HashVersion counts changes of these hashes. Where routers and hosts have
// different ones, paths are not where anybody thinks: daemon.SelectorDigest has
// it, so that status and doctor say so.
//
// 2: a second multiplication in H.
const HashVersion = 2

// Words of the sum, by the index of their multiplier.
const (
	wordAddresses = 0  // source, then destination: 1 word each, or 4
	wordProto     = 8  // IP protocol
	wordOther     = 9  // ports that are not controllable: source << 16 | destination
	wordField     = 10 // the controllable fields
	wordTTL       = 11 // as received
	words         = 12
)

// hashKeys is the secret of both hashes; the same words as in C.
type hashKeys struct {
	Add      uint64
	Multiply [words]uint64
	Finish   [2]uint64 // odd
}

// uncontrolled is the sum over what a source cannot choose.
func (k *hashKeys) uncontrolled(f *Flow, field Field) uint64 {
	sum := k.Add + k.Multiply[wordProto]*uint64(f.Proto)
	if f.six() {
		src, dst := f.Src.As16(), f.Dst.As16()
		for i := range 4 {
			sum += k.Multiply[i] * uint64(binary.LittleEndian.Uint32(src[4*i:]))
			sum += k.Multiply[4+i] * uint64(binary.LittleEndian.Uint32(dst[4*i:]))
		}
	} else {
		src, dst := f.Src.As4(), f.Dst.As4()
		sum += k.Multiply[0] * uint64(binary.LittleEndian.Uint32(src[:]))
		sum += k.Multiply[1] * uint64(binary.LittleEndian.Uint32(dst[:]))
	}
	return sum + k.Multiply[wordOther]*uint64(f.other(field))
}

// shift is H mod radix, for the router that receives this time to live.
func (k *hashKeys) shift(sum uint64, ttl uint8, radix int) int {
	h := sum + k.Multiply[wordTTL]*uint64(ttl)
	h = (h ^ h>>32) * k.Finish[0]
	h = (h ^ h>>32) * k.Finish[1]
	return int((h >> 32) * uint64(radix) >> 32)
}

// own is a router's hash of a flow: 64 bits, of which the upper 32 are good.
func (k *hashKeys) own(sum uint64, field uint32, seed [2]uint64) uint64 {
	h := (sum + k.Multiply[wordField]*uint64(field)) ^ seed[0]
	h = (h ^ h>>32) * seed[1]
	return (h ^ h>>29) * k.Finish[0]
}

// again draws another 32 bits from a router's hash.
func (k *hashKeys) again(h uint64) uint32 {
	return uint32((h ^ h>>32) * k.Finish[1] >> 32)
}

// derive fills words with secrets that nobody without the key can compute
// (HKDF, RFC 5869), different ones for each purpose.
func derive(key [16]byte, purpose string, n int) []uint64 {
	// The only error is a length of more than 255 digests, and no purpose needs that.
	b, err := hkdf.Key(sha256.New, key[:], nil, "fairlead path selector: "+purpose, 8*n)
	if err != nil {
		panic(err)
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}

func newHashKeys(key [16]byte) (k hashKeys) {
	secret := derive(key, "hash", 1+words+2)
	k.Add = secret[0]
	copy(k.Multiply[:], secret[1:])
	k.Finish = [2]uint64{secret[1+words] | 1, secret[2+words] | 1}
	return k
}

// six says whether the flow is IPv6's.
func (f *Flow) six() bool { return f.Dst.Is6() && !f.Dst.Is4In6() }

// field is the value of the controllable fields.
func (f *Flow) field(field Field) uint32 {
	switch field {
	case SourcePort:
		return uint32(f.SrcPort)
	case FlowLabel:
		return f.Label
	}
	return uint32(f.SrcPort)<<16 | uint32(f.DstPort)
}

// other is what of the ports is not controllable.
func (f *Flow) other(field Field) uint32 {
	switch field {
	case SourcePort:
		return uint32(f.DstPort)
	case FlowLabel:
		return uint32(f.SrcPort)<<16 | uint32(f.DstPort)
	}
	return 0
}

// set writes a value into the controllable fields.
func (f *Flow) set(field Field, value uint32) {
	switch field {
	case SourcePort:
		f.SrcPort = uint16(value)
	case FlowLabel:
		f.Label = value
	default:
		f.SrcPort, f.DstPort = uint16(value>>16), uint16(value)
	}
}
