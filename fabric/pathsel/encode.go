package pathsel

import (
	"errors"
	"fmt"
)

// Errors that a caller may want to tell apart.
var (
	// ErrCollision: two routers of a path read the same digit.
	ErrCollision = errors.New("two routers read the same digit")
	// ErrNoSelector: no value of the fields makes the packet take the path.
	ErrNoSelector = errors.New("no selector")
)

// encodeTries bounds how many selectors of one path Encode looks at. A random
// pair of ports is usable in 97 of 100 cases.
const encodeTries = 64

// unprivileged ports begin here; a program without rights can bind those only.
const unprivileged = 1024

// Collide says whether two steps of a path read the same digit, that is, lie a
// multiple of Length apart: one flow in radix happens to fit both, the others
// none. The error wraps ErrCollision and names the steps.
func (s *Selector) Collide(six bool, steps []Step) error {
	length := s.Length(six)
	for i, a := range steps {
		for _, b := range steps[:i] {
			if int(a.TTL)%length == int(b.TTL)%length {
				return fmt.Errorf("%w: those that receive time to live %d (port %d) and %d (port %d), as a selector has %d digits; use a smaller radix or a wider field",
					ErrCollision, b.TTL, b.Port, a.TTL, a.Port, length)
			}
		}
	}
	return nil
}

// Encode fills the controllable fields so that routers take the steps
// (algorithm 2): source and destination port if the field is Ports. Digits
// that no step needs come from random, so that calls with different numbers
// find different selectors of one path (section 3.2). What H reads must be
// there before: addresses, protocol, and the ports that are not controllable.
// Ports under 1024 and empty fields are avoided where a digit is free.
//
// Errors: ErrCollision, ErrNoSelector, a port that is no digit, a flow that
// has no such fields.
func (s *Selector) Encode(f *Flow, steps []Step, random uint64) error {
	fam := s.of(f.six())
	if err := s.encodable(f, fam, steps); err != nil {
		return err
	}
	fixed, err := s.fixed(f, fam, steps)
	if err != nil {
		return err
	}
	spare := false // f has fields that a privileged program can use
	for range encodeTries {
		random = splitmix(random)
		value := fam.permutation.forward(s.fill(fam, fixed, random))
		g := *f
		g.set(fam.field, value)
		switch usable(&g, fam.field) {
		case 2:
			*f = g
			return nil
		case 1:
			*f, spare = g, true
		}
	}
	if !spare {
		return fmt.Errorf("%w: the path's %d choices leave only fields that are 0; use another initial time to live", ErrNoSelector, len(steps))
	}
	return nil
}

// usable is 2 for fields that any program can use, 1 for those that a
// privileged one can, 0 for none.
func usable(f *Flow, field Field) int {
	low := f.SrcPort
	switch field {
	case FlowLabel:
		if f.Label == 0 {
			return 0
		}
		return 2
	case Ports:
		low = min(low, f.DstPort)
	}
	switch {
	case low == 0:
		return 0
	case low < unprivileged:
		return 1
	}
	return 2
}

// encodable checks what no selector could do.
func (s *Selector) encodable(f *Flow, fam *family, steps []Step) error {
	if !s.selects() {
		return fmt.Errorf("permutation %s: this fabric has no selectors; give it permutation %s", None, Feistel)
	}
	if !f.Src.IsValid() || !f.Dst.IsValid() || f.Src.Unmap().Is4() != f.Dst.Unmap().Is4() {
		return fmt.Errorf("flow from %s to %s: addresses are not of one family", f.Src, f.Dst)
	}
	if fam.field != FlowLabel && f.Proto != protoTCP && f.Proto != protoUDP {
		return fmt.Errorf("protocol %d has no ports: only TCP and UDP can be steered by %s", f.Proto, fam.field)
	}
	for _, step := range steps {
		if int(step.Port) >= s.config.Radix {
			return fmt.Errorf("port %d is no digit of radix %d; give the fabric a radix of more than %d",
				step.Port, s.config.Radix, step.Port)
		}
	}
	return nil
}

const (
	protoTCP = 6
	protoUDP = 17
)

// fixed are the digits, H added, that steps ask for; -1: free.
func (s *Selector) fixed(f *Flow, fam *family, steps []Step) (digits []int, err error) {
	digits = make([]int, fam.length)
	for i := range digits {
		digits[i] = -1
	}
	sum := s.hash.uncontrolled(f, fam.field)
	for _, step := range steps {
		at := int(step.TTL) % fam.length
		d := (int(step.Port) + s.shift(sum, step.TTL)) % s.config.Radix
		if digits[at] >= 0 && digits[at] != d {
			return nil, s.Collide(f.six(), steps)
		}
		digits[at] = d
	}
	return digits, nil
}

// fill makes a selector of fixed digits and random ones.
func (s *Selector) fill(fam *family, digits []int, random uint64) uint32 {
	radix := uint64(s.config.Radix)
	var p uint64
	for i, d := range digits {
		random = splitmix(random)
		if d < 0 {
			d = int(random >> 32 * radix >> 32)
		}
		p += uint64(d) * uint64(fam.power[i])
	}
	// What is above the digits is nobody's: any multiple of radix^length.
	whole := uint64(fam.power[fam.length-1]) * radix
	return uint32(p + splitmix(random)>>32*(fam.limit/whole)>>32*whole)
}

// splitmix is the generator of Steele, Lea and Flood (2014): a step and its output.
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Search yields the source ports from..to, rising, with which the flow takes
// the steps, until yield says no. It is for flows whose destination port is
// given while the field is Ports; with SourcePort it finds the same as Encode,
// within a range. What the flow's source port says does not matter.
//
// Errors: those of Encode; ErrNoSelector if it yielded nothing: one port in
// radix^steps fits, so a range has about (to-from+1) / radix^steps.
func (s *Selector) Search(f Flow, steps []Step, from, to uint16, yield func(sport uint16) bool) error {
	fam := s.of(f.six())
	if fam.field == FlowLabel {
		return fmt.Errorf("field %s: source ports select nothing; choose a label instead", FlowLabel)
	}
	if err := s.encodable(&f, fam, steps); err != nil {
		return err
	}
	if _, err := s.fixed(&f, fam, steps); err != nil {
		return err
	}
	found := false
	sum := s.hash.uncontrolled(&f, fam.field)
	for port := max(int(from), 1); port <= int(to); port++ {
		f.SrcPort = uint16(port)
		if !s.takes(&f, fam, sum, steps) {
			continue
		}
		found = true
		if !yield(f.SrcPort) {
			break
		}
	}
	if !found {
		return fmt.Errorf("%w: none of the source ports %d to %d towards port %d makes the path's %d choices of %d (one in %.0f does); use another destination port, a wider range, a smaller radix, or IPv6 with field %s",
			ErrNoSelector, from, to, f.DstPort, len(steps), s.config.Radix, chance(s.config.Radix, len(steps)), FlowLabel)
	}
	return nil
}

// takes says whether the flow makes every step.
func (s *Selector) takes(f *Flow, fam *family, sum uint64, steps []Step) bool {
	fields := f.field(fam.field)
	p := fam.permutation.back(fields)
	if fields == 0 || uint64(p) >= fam.limit {
		return false
	}
	for _, step := range steps {
		if s.digit(fam, p, sum, step.TTL) != int(step.Port) {
			return false
		}
	}
	return true
}

// chance: one in how many selectors makes the choices.
func chance(radix, choices int) float64 {
	c := 1.0
	for range choices {
		c *= float64(radix)
	}
	return c
}
