package pathsel

import "fmt"

// MaxRadix is the largest radix: a group is a bit mask of 64 port numbers.
const MaxRadix = 64

// permutation is keyed and goes both ways, over numbers of its width.
type permutation interface {
	forward(selector uint32) (fields uint32)
	back(fields uint32) (selector uint32)
}

// Selector reads and writes path selectors of one fabric. Safe for use by
// many goroutines: nothing of it changes.
type Selector struct {
	config   Config
	hash     hashKeys
	families [2]family // IPv4, IPv6
	rc5      rc5       // nil but for that permutation
	skip32   *skip32
}

// family is what differs between IPv4 and IPv6.
type family struct {
	field       Field
	bits        int
	length      int    // L: digits of a selector
	limit       uint64 // selectors are below it: the last whole multiple of radix^length
	power       []uint32
	permutation permutation
}

// New checks a configuration and derives everything from its key. Errors name
// the field, as it is called in fabric.yaml, and the remedy.
func New(c Config) (*Selector, error) {
	if c.Radix < 2 || c.Radix > MaxRadix {
		return nil, fmt.Errorf("radix: %d is not one of 2 to %d; 16 fits most fabrics", c.Radix, MaxRadix)
	}
	s := &Selector{config: c, hash: newHashKeys(c.Key)}
	switch c.Permutation {
	case Feistel, None:
	case RC5:
		s.rc5 = newRC5(cipherKey(c.Key, "rc5"), rc5Rounds)
	case Skip32:
		s.skip32 = (*skip32)(cipherKey(c.Key, "skip32"))
	default:
		return nil, fmt.Errorf("permutation: %q is none of %s, %s, %s, %s", c.Permutation, Feistel, RC5, Skip32, None)
	}
	for i, field := range []Field{c.IPv4, c.IPv6} {
		f, err := s.family(field, i == 1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", [2]string{"ipv4", "ipv6"}[i], err)
		}
		s.families[i] = f
	}
	return s, nil
}

// cipherKey is 10 bytes for one of the paper's ciphers.
func cipherKey(key [16]byte, purpose string) []byte {
	b := make([]byte, 10)
	for i, secret := 0, derive(key, purpose, 2); i < len(b); i++ {
		b[i] = byte(secret[i/8] >> (8 * (i % 8)))
	}
	return b
}

func (s *Selector) family(field Field, six bool) (f family, err error) {
	f.field = field
	switch {
	case field == Ports:
		f.bits = 32
	case field == SourcePort:
		f.bits = 16
	case field == FlowLabel && six:
		f.bits = 20
	case field == FlowLabel:
		return f, fmt.Errorf("%s: IPv4 has no flow label; use %s or %s", field, Ports, SourcePort)
	default:
		return f, fmt.Errorf("%q is none of %s, %s, and for IPv6 %s", field, Ports, SourcePort, FlowLabel)
	}
	if f.bits != 32 && (s.rc5 != nil || s.skip32 != nil) {
		return f, fmt.Errorf("%s has %d bits and permutation %s needs 32; use permutation %s or field %s",
			field, f.bits, s.config.Permutation, Feistel, Ports)
	}
	switch s.config.Permutation {
	case RC5:
		f.permutation = s.rc5
	case Skip32:
		f.permutation = s.skip32
	default:
		f.permutation = newFeistel(s.config.Key, f.bits)
	}
	radix, values := uint64(s.config.Radix), uint64(1)<<f.bits
	whole := uint64(1)
	for ; whole*radix <= values; whole *= radix {
		f.power = append(f.power, uint32(whole))
		f.length++
	}
	f.limit = values - values%whole
	return f, nil
}

// selects says whether there are selectors at all.
func (s *Selector) selects() bool { return s.config.Permutation != None }

// Config is what New was given.
func (s *Selector) Config() Config { return s.config }

// Length is L, the digits of a selector: routers this many hops apart read the
// same one. 8 for 32 bits and radix 16; 2 at least.
func (s *Selector) Length(six bool) int { return s.of(six).length }

// Bits is the width of the controllable fields.
func (s *Selector) Bits(six bool) int { return s.of(six).bits }

// Field is which fields are controllable.
func (s *Selector) Field(six bool) Field { return s.of(six).field }

func (s *Selector) of(six bool) *family {
	if six {
		return &s.families[1]
	}
	return &s.families[0]
}

// Digit is what a router reads that receives a packet of the flow with this
// time to live (equation 6): the number of the port that the packet is to
// leave by, 0 to radix - 1. Not controlled: the flow has no controllable
// fields (Flow), or a value that is no selector. Flows that nobody steered
// have digits, too, each with the same chance: a router cannot tell.
func (s *Selector) Digit(f Flow, ttl uint8) (port int, controlled bool) {
	fam := s.of(f.six())
	fields := f.field(fam.field)
	if fields == 0 || !s.selects() {
		return 0, false
	}
	p := fam.permutation.back(fields)
	if uint64(p) >= fam.limit {
		return 0, false
	}
	sum := s.hash.uncontrolled(&f, fam.field)
	return s.digit(fam, p, sum, ttl), true
}

// digit reads a selector at a time to live; sum is of the uncontrollable fields.
func (s *Selector) digit(fam *family, p uint32, sum uint64, ttl uint8) int {
	d := int(p/fam.power[int(ttl)%fam.length])%s.config.Radix - s.shift(sum, ttl)
	if d < 0 {
		d += s.config.Radix
	}
	return d
}

// shift is H mod radix at a time to live.
func (s *Selector) shift(sum uint64, ttl uint8) int {
	return s.hash.shift(sum, ttl, s.config.Radix)
}
