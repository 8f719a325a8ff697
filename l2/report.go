package l2

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/wire"
)

// Report is who holds which address, as one balancer knows it.
type Report struct {
	Addresses []Address
	// Silent is why the store does not answer, empty: it does.
	Silent string
}

// Address is one of VIPs.
type Address struct {
	Address netip.Addr
	VIPs    []string
	// Held: this balancer answers for it, since then; else since is when it last
	// could, or could not.
	Held  bool
	Since time.Time
	// Holder is who holds it by the store, empty: nobody.
	Holder string
	// Why this balancer does not hold it, or what is wrong where it does.
	Why []string
}

// Report says who holds what, and why this balancer does not hold the rest.
func (k *Keeper) Report() Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := Report{Silent: k.silent}
	now := time.Now()
	for _, d := range k.decisions {
		out := Address{Address: d.Address, VIPs: d.VIPs, Holder: k.holders[d.Address].Name, Since: k.since[d.Address], Why: d.Withheld}
		is, c := k.answers[d.Address], k.claims[d.Address]
		switch {
		case is != nil:
			out.Held, out.Since = true, is.since
			if is.taken != 0 {
				out.Why = append(out.Why, fmt.Sprintf("%s, which holds it by the store, is silent, and the store is, too", out.Holder))
			}
			if k.lease != nil && now.Sub(c.at) < 2*ownEvery*askInterval && c.at.Sub(is.since) > handover {
				out.Why = append(out.Why, fmt.Sprintf("%s answers for it as well: on a server, set arp_ignore=1 and arp_announce=2 (fairlead doctor)", mac(c.mac)))
			}
		case len(out.Why) > 0:
		case k.lease == nil && out.Holder == k.o.Name:
			out.Why = []string{fmt.Sprintf("the store is silent, and %s was heard to have it", mac(c.mac))}
		case out.Holder != "" && out.Holder != k.o.Name:
			out.Why = []string{out.Holder + " holds it"}
		case k.lease == nil:
			out.Why = []string{"the store is silent, and has to agree: " + k.silent}
		default:
			out.Why = []string{"nobody holds it yet"}
		}
		r.Addresses = append(r.Addresses, out)
	}
	return r
}

func mac(m wire.MAC) string { return net.HardwareAddr(m[:]).String() }
