package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
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
