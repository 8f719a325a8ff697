package lb

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
)

// constants are the settings that both programs share.
func (l *LB) constants() (map[string]any, error) {
	s4, err := l.source(l.o.Source4, false)
	if err != nil {
		return nil, err
	}
	s6, err := l.source(l.o.Source6, true)
	if err != nil {
		return nil, err
	}
	l.asker.source4, l.asker.source6 = s4.Addr(), s6.Addr()
	c := map[string]any{"steering": uint32(0)}
	if l.o.Steer {
		c["steering"] = uint32(1)
	}
	a4, m4 := s4.Masked().Addr().As4(), hostMask(s4)
	if s4.IsSingleIP() {
		a4 = s4.Addr().As4()
	}
	c["source4"] = binary.NativeEndian.Uint32(a4[:])
	c["source4_mask"] = binary.NativeEndian.Uint32(m4)
	a6, m6 := s6.Masked().Addr().As16(), hostMask(s6)
	c["source6"] = [2]uint64{binary.NativeEndian.Uint64(a6[:8]), binary.NativeEndian.Uint64(a6[8:])}
	c["source6_mask"] = [2]uint64{binary.NativeEndian.Uint64(m6[:8]), binary.NativeEndian.Uint64(m6[8:])}
	return c, nil
}

// hostMask has a one where the prefix leaves a bit free, in wire order.
func hostMask(p netip.Prefix) []byte {
	m := net.CIDRMask(p.Bits(), p.Addr().BitLen())
	for i := range m {
		m[i] = ^m[i]
	}
	return m
}

// source is the configured prefix, or the first interface's first address of
// the family; the unspecified address where there is none, with which Apply
// refuses servers of that family.
func (l *LB) source(configured netip.Prefix, six bool) (netip.Prefix, error) {
	if configured.IsValid() {
		if configured.Addr().Is6() != six {
			return configured, fmt.Errorf("source %v: wrong address family", configured)
		}
		return configured, nil
	}
	a, err := firstAddress(l.ifaces, six)
	return netip.PrefixFrom(a, a.BitLen()), err
}

// firstAddress is the first of the family that the interfaces have; the
// unspecified address where there is none.
func firstAddress(ifaces []net.Interface, six bool) (netip.Addr, error) {
	for _, i := range ifaces {
		addrs, err := i.Addrs()
		if err != nil {
			return netip.Addr{}, fmt.Errorf("interface %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().Is6() == six && !p.Addr().IsLinkLocalUnicast() {
				return p.Addr(), nil
			}
		}
	}
	if six {
		return netip.IPv6Unspecified(), nil
	}
	return netip.IPv4Unspecified(), nil
}
