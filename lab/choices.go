package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/vip"
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
	row := vip.Scheme(scheme).Row()
	if row.Chains() {
		return fmt.Errorf("--hash %s: scheme %s goes by its buckets; leave --hash out", hash, scheme)
	}
	if k := chash.Kind(hash); row.Foresees() && !k.Minimal() {
		var others []string
		for _, k := range chash.Kinds() {
			if k.Minimal() {
				others = append(others, string(k))
			}
		}
		return fmt.Errorf("--hash %s: its changes move more connections than %s can foresee; take one of %s, or --scheme full-ct", hash, scheme, strings.Join(others, ", "))
	}
	return nil
}

// uniform refuses VIPs that need two kinds of front machines.
func uniform(vips []VIP) error {
	for _, v := range vips {
		if v.row().Switched != vips[0].row().Switched && !v.bare() && !vips[0].bare() {
			return fmt.Errorf("VIPs %s and %s: scheme faild has switches where the others have balancers; run them in two labs", vips[0].Name, v.Name)
		}
	}
	return nil
}

// carriesHops refuses a forwarding without a header for what the scheme's
// packets say.
func carriesHops(scheme, forwarding string) error {
	if vip.Scheme(scheme).Row().Hops && !vip.Forwarding(forwarding).Row().Tunnel {
		return fmt.Errorf("--forwarding %s: scheme %s's packets name the servers to ask next, and %[1]s has no header for it; take %s", forwarding, scheme, strings.Join(vip.TunnelNames(), " or "))
	}
	return nil
}
