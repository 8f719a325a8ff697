package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// diag asks the kernel which sockets a network namespace has (sock_diag(7)).
// It is bound to the namespace in which it was made; safe for use by several
// goroutines, one after another.
type diag struct{ sockets map[int]*nl.SocketHandle }

// openDiag belongs to the calling thread's network namespace.
func openDiag() (*diag, error) {
	s, err := openNetlink(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	return &diag{s}, nil
}

// openNetlink is a netlink socket of the calling thread's network namespace.
func openNetlink(protocol int) (map[int]*nl.SocketHandle, error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	// As netlink's own handles are: a kernel that does not answer is an error.
	for _, set := range []func(*unix.Timeval) error{s.SetSendTimeout, s.SetReceiveTimeout} {
		if err := set(&unix.Timeval{Sec: 60}); err != nil {
			s.Close()
			return nil, fmt.Errorf("open netlink: %w", err)
		}
	}
	return map[int]*nl.SocketHandle{protocol: {Socket: s}}, nil
}

func (d *diag) close() {
	for _, s := range d.sockets {
		s.Close()
	}
}

// socket is one that a dump names. Addresses of IPv4, mapped ones too, are
// plain IPv4.
type socket struct {
	local, remote netip.AddrPort
	state         uint8 // of TCP's states
}

// TCP's states by number, as in the kernel's tcp_states.h.
const (
	tcpEstablished = 1
	tcpSynSent     = 2
	tcpSynRecv     = 3
	tcpTimeWait    = 6
	tcpClose       = 7
	tcpListen      = 10
	tcpNewSynRecv  = 12
	tcpStates      = 1<<(tcpNewSynRecv+1) - 2 // all up to NEW_SYN_RECV
)

// each calls f for every socket of a protocol whose state's bit is in
// states. Both families are asked.
func (d *diag) each(protocol uint8, states uint32, f func(socket)) error {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		req := nl.NewNetlinkRequest(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP)
		req.Sockets = d.sockets
		req.AddRawData(diagRequest(family, protocol, states))
		err := req.ExecuteIter(unix.NETLINK_SOCK_DIAG, nl.SOCK_DIAG_BY_FAMILY, func(msg []byte) bool {
			if s, ok := parseSocket(msg); ok {
				f(s)
			}
			return true
		})
		switch {
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("list sockets: the kernel cannot (%w); it needs CONFIG_INET_DIAG and CONFIG_INET_UDP_DIAG", err)
		case err != nil && !errors.Is(err, nl.ErrDumpInterrupted):
			return fmt.Errorf("list sockets: %w", err)
		}
	}
	return nil
}

// exactRequest is struct inet_diag_req_v2 of one socket: who takes what comes to
// local from nobody in particular.
func exactRequest(protocol uint8, local netip.AddrPort) []byte {
	family, port, addr := uint8(unix.AF_INET), 8, 12
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	if protocol == wire.ProtoUDP {
		port, addr = 10, 28 // there the kernel has source and destination the other way round
	}
	b := diagRequest(family, protocol, 0)
	binary.BigEndian.PutUint16(b[port:], local.Port())
	copy(b[addr:], local.Addr().AsSlice())
	for i := 48; i < 56; i++ {
		b[i] = 0xff // INET_DIAG_NOCOOKIE: whichever it is
	}
	return b
}

// diagRequest is struct inet_diag_req_v2 without an identity: all sockets.
func diagRequest(family, protocol uint8, states uint32) []byte {
	b := make([]byte, 56)
	b[0], b[1] = family, protocol
	binary.NativeEndian.PutUint32(b[4:], states)
	return b
}

// parseSocket reads struct inet_diag_msg.
func parseSocket(b []byte) (s socket, ok bool) {
	if len(b) < 72 {
		return s, false
	}
	addr := func(b []byte) netip.Addr {
		return netip.AddrFrom16([16]byte(b)).Unmap()
	}
	if b[0] == unix.AF_INET {
		addr = func(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
	}
	s.state = b[1]
	s.local = netip.AddrPortFrom(addr(b[8:24]), binary.BigEndian.Uint16(b[4:]))
	s.remote = netip.AddrPortFrom(addr(b[24:40]), binary.BigEndian.Uint16(b[6:]))
	return s, true
}
