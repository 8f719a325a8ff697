package policy

import "github.com/fairlead/fairlead/hash"

// HashBit is p2c between the servers that two hashes of the connection name;
// one bit in its cookie says which of them took it (Cheetah, NSDI'20,
// appendix B). The data plane does not have it; the simulator runs it.
const HashBit = "hash-bit"

// ChooseHashBit chooses between the two servers that the halves of a
// connection's hash name: the one with fewer open connections per weight, the
// first if they are equal. second is the bit to put into the cookie. false:
// the table, as Table makes it for p2c, is empty.
func ChooseHashBit(hash uint64, table []uint32, open func(slot uint16) int32) (entry uint32, second, ok bool) {
	first, ok := HashBitEntry(hash, table, false)
	if !ok {
		return 0, false, false
	}
	other, _ := HashBitEntry(hash, table, true)
	if busier(first, other, open) {
		return other, true, true
	}
	return first, false, true
}

// HashBitEntry finds a known connection's server again from its hash and the
// bit in its cookie. It holds as long as the table stays the same; App. B adds
// a tag of the table's version against changes.
func HashBitEntry(h uint64, table []uint32, second bool) (entry uint32, ok bool) {
	if len(table) == 0 {
		return 0, false
	}
	half := uint32(h >> 32)
	if second {
		half = uint32(h)
	}
	return table[hash.Scale(half, len(table))], true
}
