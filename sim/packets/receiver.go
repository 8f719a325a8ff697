package packets

// window is the most that a sender has outstanding, in segments: the receive
// window. A power of two.
const window = 1024

// receiver is that of one subflow.
type receiver struct {
	expected int32 // all before it are there
	early    [window / 64]uint64
}

// receive takes a segment, which is less than a window beyond what is expected.
func (r *receiver) receive(number int32) {
	if number < r.expected {
		return // again
	}
	r.early[number%window/64] |= 1 << (number % 64)
	for {
		at := r.expected
		word, bit := &r.early[at%window/64], uint64(1)<<(at%64)
		if *word&bit == 0 {
			return
		}
		*word &^= bit
		r.expected++
	}
}
