package buckets

import "math/bits"

// Bitmap has a bit for each bucket, bucket 0 the lowest of the first octet.
// Those behind its end are 0.
type Bitmap []byte

// NewBitmap is one of n buckets, none set.
func NewBitmap(n int) Bitmap { return make(Bitmap, BitmapLen(n)) }

// BitmapLen is how many octets a bitmap of n buckets has.
func BitmapLen(n int) int { return (n + 7) / 8 }

// Has tells whether bucket b is set.
func (m Bitmap) Has(b int) bool { return b/8 < len(m) && m[b/8]>>(b%8)&1 != 0 }

// Set sets bucket b, which it must have room for.
func (m Bitmap) Set(b int) { m[b/8] |= 1 << (b % 8) }

// each calls do for every bucket below n that is set, in ascending order.
func (m Bitmap) each(n int, do func(b int)) {
	for i, octet := range m {
		for ; octet != 0; octet &= octet - 1 {
			if b := i*8 + bits.TrailingZeros8(octet); b < n {
				do(b)
			}
		}
	}
}

// OwnersOf turns reports round: owned[i] are the buckets, of n, of which server
// numbers[i] owns connections; the function tells the servers of a bucket, in
// the order of numbers. It takes 4 octets a bucket and 2 for each that is set.
func OwnersOf(n int, numbers []uint16, owned []Bitmap) func(bucket int) []uint16 {
	// One list for all buckets: ends[b] is where b's part ends.
	ends := make([]uint32, n+1)
	for _, m := range owned {
		m.each(n, func(b int) { ends[b+1]++ })
	}
	for b := range n {
		ends[b+1] += ends[b]
	}
	list := make([]uint16, ends[n])
	for i, m := range owned {
		m.each(n, func(b int) {
			list[ends[b]] = numbers[i]
			ends[b]++
		})
	}
	return func(b int) []uint16 {
		if b == 0 {
			return list[:ends[0]]
		}
		return list[ends[b-1]:ends[b]]
	}
}
