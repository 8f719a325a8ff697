package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/wire"
)

const (
	protoUDP     = unix.IPPROTO_UDP
	ipv6FlowInfo = 11 // IPV6_FLOWINFO of linux/in6.h
)

// socket is a UDP socket that is told more of each packet than Go's own would
// say: TTL, label, the address it was sent to, when the kernel received it,
// and routers' ICMP errors.
type socket struct {
	conn *net.UDPConn
	six  bool
}

// packet is what was received.
type packet struct {
	data  []byte
	from  netip.AddrPort // of an error: whom the packet was sent to
	to    netip.Addr
	ttl   uint8
	label uint32
	at    time.Time
	icmp  *icmpError // nil: a packet, else an error about one that was sent
}

// icmpError is a router's answer about a packet; its quote is in packet.data.
type icmpError struct {
	router     netip.Addr // invalid: this host itself
	kind, code uint8
	six        bool
}

// openSocket opens a socket in the calling thread's network namespace. errs
// asks for ICMP errors.
func openSocket(at netip.AddrPort, errs bool) (*socket, error) {
	network := "udp4"
	if at.Addr().Is6() {
		network = "udp6"
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	s := &socket{conn, at.Addr().Is6()}
	if err := s.options(errs); err != nil {
		conn.Close()
		return nil, fmt.Errorf("socket options: %w", err)
	}
	return s, nil
}

func (s *socket) options(errs bool) error {
	type option struct{ level, name int }
	on := []option{{unix.SOL_SOCKET, unix.SO_TIMESTAMPNS}}
	if s.six {
		on = append(on, option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}, option{unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT}, option{unix.IPPROTO_IPV6, ipv6FlowInfo})
	} else {
		on = append(on, option{unix.IPPROTO_IP, unix.IP_PKTINFO}, option{unix.IPPROTO_IP, unix.IP_RECVTTL})
	}
	if errs && s.six {
		on = append(on, option{unix.IPPROTO_IPV6, unix.IPV6_RECVERR})
	} else if errs {
		on = append(on, option{unix.IPPROTO_IP, unix.IP_RECVERR})
	}
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for _, o := range on {
			failed = errors.Join(failed, unix.SetsockoptInt(int(fd), o.level, o.name, 1))
		}
	})
	return errors.Join(err, failed)
}

func (s *socket) close() { s.conn.Close() }

// port is the socket's own.
func (s *socket) port() uint16 { return uint16(s.conn.LocalAddr().(*net.UDPAddr).Port) }

// send sends data with the TTL and (IPv6) label given. An error that the
// kernel reports about an earlier packet is not this one's: it is tried again.
func (s *socket) send(data []byte, to netip.AddrPort, ttl uint8, label uint32) error {
	control := hopControl(s.six, ttl, label)
	var err error
	for range 3 {
		if _, _, err = s.conn.WriteMsgUDPAddrPort(data, control, to); err == nil {
			return nil
		}
	}
	return err
}

// receive waits for packets and errors and hands each to f, whose packet holds
// only until it returns. It ends when the socket is closed.
func (s *socket) receive(f func(packet)) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return
	}
	data, control := make([]byte, 1<<16), make([]byte, 512)
	_ = raw.Read(func(fd uintptr) bool {
		for _, flags := range []int{0, unix.MSG_ERRQUEUE} {
			for {
				n, cn, _, from, err := unix.Recvmsg(int(fd), data, control, flags|unix.MSG_DONTWAIT)
				if errors.Is(err, unix.EAGAIN) {
					break
				}
				if errors.Is(err, unix.EBADF) {
					return true
				}
				if err != nil {
					continue // an ICMP error: it stands in the error queue as well
				}
				f(parsePacket(data[:n], control[:cn], addrPort(from)))
			}
		}
		return false
	})
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
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

// rawSocket sends UDP from any source port. It receives nothing.
type rawSocket struct {
	fd  int
	six bool
}

func openRaw(six bool) (*rawSocket, error) {
	family := unix.AF_INET
	if six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("open a raw socket, to answer from the ports that probes ask for: %w; run as root, or with CAP_NET_RAW", err)
	}
	// A raw socket is given a copy of every UDP packet; this filter takes none.
	none := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &none)
	if err == nil && six {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return &rawSocket{fd, six}, nil
}

func (r *rawSocket) close() { unix.Close(r.fd) }

// send sends data as UDP with the flow's addresses, ports and label.
func (r *rawSocket) send(data []byte, f pathsel.Flow, ttl uint8) error {
	b := make([]byte, 8, 8+len(data))
	binary.BigEndian.PutUint16(b, f.SrcPort)
	binary.BigEndian.PutUint16(b[2:], f.DstPort)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(data)))
	b = append(b, data...)
	if !r.six { // for IPv6 the kernel does it
		sum := wire.TransportChecksum(f.Src, f.Dst, protoUDP, b)
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(b[6:], sum)
	}
	control := sourceControl(hopControl(r.six, ttl, f.Label), f.Src)
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: f.Dst.As16()}
	if !r.six {
		to = &unix.SockaddrInet4{Addr: f.Dst.As4()}
	}
	return unix.Sendmsg(r.fd, b, control, to, 0)
}
