package chash

// Path is the walk of Place for people: the buckets that it draws, in order,
// each removed when fewer were left than before; the last is the slot. Empty
// where no server is found. It allocates.
func (t *AnchorTable) Path(h uint64) []int {
	slot, _, _ := t.Place(h)
	if slot < 0 {
		return nil
	}
	b := uint32(scale(h>>32, uint64(len(t.Entries))))
	path := []int{int(b)}
	for {
		n := t.Entries[b] & 0xffff
		if n == 0 {
			return path
		}
		for b = uint32(scale(anchorMix(h, b), uint64(n))); t.Entries[b]&0xffff >= n; {
			b = t.Entries[b] >> 16
		}
		path = append(path, int(b))
	}
}
