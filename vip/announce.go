package vip

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// When the route of a VIP's address is announced by BGP, of a daemon that is ready.
const (
	AnnounceHealthy = "healthy" // while a server takes new connections; the default
	AnnounceAlways  = "always"
	AnnounceNever   = "never"
)

// MaxMED is the highest multi-exit discriminator.
const MaxMED = 1<<32 - 1

// Community is a BGP community: of two numbers below 2^16 (RFC 1997), or, if it is
// Large, of three below 2^32 (RFC 8092).
type Community struct {
	Large  bool
	Values [3]uint32 // the third is of large ones
}

// wellKnown are communities that have names.
var wellKnown = map[string]Community{
	"graceful-shutdown": {Values: [3]uint32{0xffff, 0}},
	"no-export":         {Values: [3]uint32{0xffff, 0xff01}},
	"no-advertise":      {Values: [3]uint32{0xffff, 0xff02}},
}

// ParseCommunity reads 65001:100, 65001:1:2 or a name such as no-export.
func ParseCommunity(text string) (c Community, ok bool) {
	if c, ok = wellKnown[text]; ok {
		return c, true
	}
	parts, bits := strings.Split(text, ":"), 16
	switch len(parts) {
	case 2:
	case 3:
		c.Large, bits = true, 32
	default:
		return c, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, bits)
		if err != nil {
			return Community{}, false
		}
		c.Values[i] = uint32(n)
	}
	return c, true
}

// mostCommunities keeps an announcement within one message.
const mostCommunities = 32

// CheckRoute says what is wrong with communities and a MED.
func CheckRoute(communities []string, med int) (found []Problem) {
	for i, text := range communities {
		field := fmt.Sprintf("communities[%d]", i)
		if _, ok := ParseCommunity(text); !ok {
			found = append(found, Problem{Field: field, Value: text, Wrong: "not a community", Remedy: `write "65001:100", "65001:1:2" or a name: graceful-shutdown, no-advertise, no-export`})
		} else if slices.Contains(communities[:i], text) {
			found = append(found, Problem{Field: field, Value: text, Wrong: "named twice", Remedy: "remove one"})
		}
	}
	if n := len(communities); n > mostCommunities {
		found = append(found, Problem{Field: "communities", Value: fmt.Sprint(n), Wrong: "too many", Remedy: fmt.Sprintf("write %d at most", mostCommunities)})
	}
	if med < 0 || med > MaxMED {
		found = append(found, Problem{Field: "med", Value: fmt.Sprint(med), Wrong: "out of range", Remedy: fmt.Sprintf("write 0 to %d: routers prefer the lowest", MaxMED)})
	}
	return found
}

// Announces is when the VIP's address is announced.
func (s *Settings) Announces() string { return cmp.Or(s.Announce, AnnounceHealthy) }

// announce looks at what is about BGP.
func (c *check) announce() { c.found = append(c.found, CheckRoute(c.s.Communities, c.s.MED)...) }
