package topology

import (
	"errors"
	"math"
	"net/netip"
	"strconv"
	"strings"
)

// none is what a file writes where an end has no number, address or device.
const none = "none"

// number is a port's number in a file.
type number int

func (n *number) UnmarshalText(text []byte) error {
	if string(text) == none {
		*n = -1
		return nil
	}
	v, err := strconv.ParseUint(string(text), 10, 16)
	if err != nil {
		return errors.New("not a port's number")
	}
	*n = number(v)
	return nil
}

// MarshalYAML writes numbers without quotes.
func (n number) MarshalYAML() (any, error) {
	if n < 0 {
		return none, nil
	}
	return int(n), nil
}

// address is an address in a file that may be none.
type address struct{ netip.Addr }

func (a *address) UnmarshalText(text []byte) error {
	if string(text) == none {
		*a = address{}
		return nil
	}
	v, err := netip.ParseAddr(string(text))
	if err != nil {
		return errors.New("not an IP address")
	}
	*a = address{v}
	return nil
}

func (a address) MarshalYAML() (any, error) {
	if !a.IsValid() {
		return none, nil
	}
	return a.String(), nil
}

// rate is a link's capacity in bit/s.
type rate int64

var units = []struct {
	name string
	bits float64
}{{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}, {"", 1}}

// ParseRate reads 10Gbit, 2.5Gbit, 100Mbit, 64kbit or a number of bit/s.
func ParseRate(text string) (bitsPerSecond int64, err error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		v *= u.bits
		if err != nil || !(v >= 1) || v > 1e15 || v != math.Trunc(v) {
			break
		}
		return int64(v), nil
	}
	return 0, errors.New("not a rate")
}

// FormatRate writes it as ParseRate reads it, in the largest unit that needs
// no fraction.
func FormatRate(bitsPerSecond int64) string {
	for _, u := range units {
		if whole := int64(u.bits); bitsPerSecond%whole == 0 {
			return strconv.FormatInt(bitsPerSecond/whole, 10) + u.name
		}
	}
	return strconv.FormatInt(bitsPerSecond, 10)
}

func (r *rate) UnmarshalText(text []byte) error {
	v, err := ParseRate(string(text))
	*r = rate(v)
	return err
}

func (r rate) MarshalYAML() (any, error) { return FormatRate(int64(r)), nil }
