package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/chash"
)

// What a lab's VIPs can be.
var (
	schemeNames     = []string{"cheetah", "jet", "beamer", "faild", "full-ct", "stateless"}
	policyNames     = []string{"rr", "wrr", "p2c", "least-conn", "hash"}
	forwardingNames = []string{"ipip", "gue", "l2"}
)

// kinds are the names of the hashes.
func kinds() (names []string) {
	for _, k := range chash.Kinds() {
		names = append(names, string(k))
	}
	return names
}

// choice is what was given for a flag, and what may be.
type choice struct {
	flag           string
	given, allowed []string
}

func (c choice) check() error {
	for _, g := range c.given {
		if !slices.Contains(c.allowed, g) {
			return fmt.Errorf("--%s %q: must be one of %s", c.flag, g, strings.Join(c.allowed, ", "))
		}
	}
	return nil
}

// suits refuses a hash that a scheme cannot keep connections with, before a
// lab is built for it.
func suits(scheme, hash string) error {
	if chained(scheme) {
		return fmt.Errorf("--hash %s: scheme %s goes by its buckets; leave --hash out", hash, scheme)
	}
	if k := chash.Kind(hash); scheme == "jet" && !k.Minimal() {
		var others []string
		for _, k := range chash.Kinds() {
			if k.Minimal() {
				others = append(others, string(k))
			}
		}
		return fmt.Errorf("--hash %s: its changes move more connections than jet can foresee; take one of %s, or --scheme full-ct", hash, strings.Join(others, ", "))
	}
	return nil
}

// chained tells the schemes whose servers pass packets on to each other.
func chained(scheme string) bool { return scheme == "beamer" || scheme == "faild" }

// uniform refuses VIPs that need two kinds of front machines.
func uniform(vips []VIP) error {
	for _, v := range vips {
		if (v.Scheme == "faild") != (vips[0].Scheme == "faild") && !v.bare() && !vips[0].bare() {
			return fmt.Errorf("VIPs %s and %s: scheme faild has switches where the others have balancers; run them in two labs", vips[0].Name, v.Name)
		}
	}
	return nil
}

// noHops is why scheme beamer and forwarding l2 do not go together.
const noHops = "scheme beamer's packets name the servers to ask next, and l2 has no header for it; take ipip or gue"
