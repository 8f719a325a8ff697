package probe

import (
	"encoding/binary"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages: what the kernel says about a packet beside its data, and
// what it is told.

// icmpError is a router's answer about a packet; its quote is in packet.data.
type icmpError struct {
	router     netip.Addr // invalid: this host itself
	kind, code uint8
	six        bool
}

func parsePacket(data, control []byte, from netip.AddrPort) packet {
	p := packet{data: data, from: from, at: time.Now()}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return p
	}
	for _, m := range messages {
		p.control(int(m.Header.Level), int(m.Header.Type), m.Data)
	}
	return p
}

// control takes in one control message.
func (p *packet) control(level, kind int, d []byte) {
	switch {
	case level == unix.SOL_SOCKET && kind == unix.SO_TIMESTAMPNS && len(d) >= 16:
		p.at = time.Unix(int64(binary.NativeEndian.Uint64(d)), int64(binary.NativeEndian.Uint64(d[8:])))
	case level == unix.IPPROTO_IP && kind == unix.IP_PKTINFO && len(d) >= 12:
		p.to = netip.AddrFrom4([4]byte(d[8:12])) // ipi_addr: the header's destination
	case level == unix.IPPROTO_IP && kind == unix.IP_TTL && len(d) >= 4,
		level == unix.IPPROTO_IPV6 && kind == unix.IPV6_HOPLIMIT && len(d) >= 4:
		p.ttl = uint8(binary.NativeEndian.Uint32(d))
	case level == unix.IPPROTO_IPV6 && kind == unix.IPV6_PKTINFO && len(d) >= 16:
		p.to = netip.AddrFrom16([16]byte(d[:16]))
	case level == unix.IPPROTO_IPV6 && kind == ipv6FlowInfo && len(d) >= 4:
		p.label = binary.BigEndian.Uint32(d) & 0xfffff
	case level == unix.IPPROTO_IP && kind == unix.IP_RECVERR, level == unix.IPPROTO_IPV6 && kind == unix.IPV6_RECVERR:
		p.icmp = parseError(d, level == unix.IPPROTO_IPV6)
	}
}

// parseError reads struct sock_extended_err and the offender's address behind
// it.
func parseError(d []byte, six bool) *icmpError {
	const size = int(unsafe.Sizeof(unix.SockExtendedErr{}))
	if len(d) < size {
		return nil
	}
	e := &icmpError{kind: d[5], code: d[6], six: six}
	if origin := d[4]; origin != unix.SO_EE_ORIGIN_ICMP && origin != unix.SO_EE_ORIGIN_ICMP6 {
		return e
	}
	switch sa := d[size:]; {
	case len(sa) >= 8 && binary.NativeEndian.Uint16(sa) == unix.AF_INET:
		e.router = netip.AddrFrom4([4]byte(sa[4:8]))
	case len(sa) >= 24 && binary.NativeEndian.Uint16(sa) == unix.AF_INET6:
		e.router = netip.AddrFrom16([16]byte(sa[8:24]))
	}
	return e
}

// The ICMP messages that matter here.
func (e *icmpError) expired() bool {
	return e.six && e.kind == 3 && e.code == 0 || !e.six && e.kind == 11 && e.code == 0
}

func (e *icmpError) noPort() bool {
	return e.six && e.kind == 1 && e.code == 4 || !e.six && e.kind == 3 && e.code == 3
}

func (e *icmpError) unreachable() bool {
	return (e.six && e.kind == 1 || !e.six && e.kind == 3) && !e.noPort()
}

// hopControl is the ancillary data that gives a packet its TTL and label; 0
// leaves each to the kernel.
func hopControl(six bool, ttl uint8, label uint32) []byte {
	var b []byte
	if ttl != 0 && six {
		b = appendControl(b, unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, native32(uint32(ttl)))
	} else if ttl != 0 {
		b = appendControl(b, unix.IPPROTO_IP, unix.IP_TTL, native32(uint32(ttl)))
	}
	if six && label != 0 {
		b = appendControl(b, unix.IPPROTO_IPV6, ipv6FlowInfo, binary.BigEndian.AppendUint32(nil, label))
	}
	return b
}

// sourceControl is the ancillary data that gives a packet its source address.
func sourceControl(b []byte, source netip.Addr) []byte {
	if source.Is6() {
		a := source.As16()
		return appendControl(b, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, append(a[:], 0, 0, 0, 0))
	}
	a := source.As4()
	return appendControl(b, unix.IPPROTO_IP, unix.IP_PKTINFO, append(append(make([]byte, 4), a[:]...), 0, 0, 0, 0))
}

func native32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func appendControl(b []byte, level, kind int, data []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, unix.CmsgSpace(len(data)))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[at]))
	h.Level, h.Type = int32(level), int32(kind)
	h.SetLen(unix.CmsgLen(len(data)))
	copy(b[at+unix.CmsgLen(0):], data)
	return b
}
