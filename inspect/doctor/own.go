package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// own: has this machine the addresses that the file gives to its entry? If
// not, it is another machine, or the file is wrong.
func (r *report) own(o Options) {
	has, err := addresses()
	if err != nil {
		return // and then nothing can be said
	}
	if b := o.Balancer; b != nil {
		r.ownAddresses(b.Name, has, map[string]netip.Addr{"api": listens(b.API), "source": single(b.Source), "source6": single(b.Source6)})
	}
	if s := o.Server; s != nil {
		r.ownAddresses(s.Name, has, map[string]netip.Addr{"api": listens(s.API), "address": s.Address})
	}
}

// addresses are this machine's.
func addresses() (all []netip.Addr, err error) {
	list, err := net.InterfaceAddrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr().Unmap())
		}
	}
	return all, err
}

// ownAddresses compares what the file gives to entry name, by key, with the
// addresses that the machine has; an invalid one says nothing.
func (r *report) ownAddresses(name string, has []netip.Addr, gives map[string]netip.Addr) {
	var lacks []string
	named := false
	for _, key := range []string{"api", "address", "source", "source6"} {
		a := gives[key]
		if !a.IsValid() {
			continue
		}
		named = true
		if !slices.Contains(has, a.Unmap()) {
			lacks = append(lacks, fmt.Sprintf("%s %s", key, a))
		}
	}
	switch {
	case len(lacks) > 0:
		r.warn("addresses of "+name, "this machine has no "+strings.Join(lacks, ", no "),
			fmt.Sprintf("run doctor on the machine that is %s, or correct its entry in the file", name))
	case named:
		r.ok("addresses of "+name, "are this machine's")
	}
}

// listens is the address of an api of the form https://address:port; invalid
// for a socket, no agent and every address.
func listens(endpoint string) netip.Addr {
	at, ok := strings.CutPrefix(endpoint, "https://")
	if !ok {
		return netip.Addr{}
	}
	a, err := netip.ParseAddrPort(at)
	if err != nil || a.Addr().IsUnspecified() {
		return netip.Addr{}
	}
	return a.Addr().WithZone("")
}

// single is the source that is one address: a wider prefix need not be on any
// interface.
func single(p netip.Prefix) netip.Addr {
	if !p.IsSingleIP() {
		return netip.Addr{}
	}
	return p.Addr()
}
