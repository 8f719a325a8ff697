package nexthop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// routeSocket looks routes up, many with one system call: of 32,000 servers that join,
// one call each (and what a library does around it) takes longer than all else that a
// balancer has to do.
type routeSocket struct {
	mu  sync.Mutex
	fd  int
	seq uint32
	buf []byte
}

const (
	// routesAtOnce answers fit the smallest receive buffer that a kernel gives unasked.
	routesAtOnce  = 32
	requestLength = unix.SizeofNlMsghdr + unix.SizeofRtMsg
	// manyRoutes are worth a second processor, and mostSockets as many.
	manyRoutes  = 32 * routesAtOnce
	mostSockets = 4
)

// routeSockets look routes up at the same time, a share each: one takes the kernel some
// microseconds.
type routeSockets []*routeSocket

// openRoutes belongs to the calling thread's network namespace.
func openRoutes() (all routeSockets, err error) {
	for range min(runtime.GOMAXPROCS(0), mostSockets) {
		s, err := openRouteSocket()
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (all routeSockets) close() {
	for _, s := range all {
		s.close()
	}
}

// lookUp asks for the routes to destinations, as `ip route get` does.
func (all routeSockets) lookUp(destinations []netip.Addr) []found {
	answers := make([]found, len(destinations))
	share := max((len(answers)+len(all)-1)/len(all), manyRoutes)
	var at sync.WaitGroup
	for i, first := 0, 0; first < len(answers); i, first = i+1, first+share {
		end := min(first+share, len(answers))
		at.Go(func() { all[i].lookUp(destinations[first:end], answers[first:end]) })
	}
	at.Wait()
	return answers
}

func openRouteSocket() (*routeSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err == nil {
		if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink for routes: %w", err)
	}
	return &routeSocket{fd: fd, buf: make([]byte, 32<<10)}, nil
}

// close may be called again: the number may be another file's by then.
func (s *routeSocket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
	s.fd = -1
}

// found is what a look-up gave.
type found struct {
	route route
	err   error
}

type route struct {
	kind    uint8 // unix.RTN_*
	link    int   // by index
	gateway netip.Addr
	mtu     int // 0: the link's
}

var errNoAnswer = errors.New("the kernel did not answer")

// lookUp fills in all, of as many destinations.
func (s *routeSocket) lookUp(destinations []netip.Addr, all []found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for first := 0; first < len(all); first += routesAtOnce {
		end := min(first+routesAtOnce, len(all))
		s.some(destinations[first:end], all[first:end])
	}
}

func (s *routeSocket) some(destinations []netip.Addr, to []found) {
	var requests []byte
	begin := s.seq
	for i, a := range destinations {
		to[i].err = errNoAnswer
		requests = appendRequest(requests, begin+uint32(i), a)
	}
	s.seq += uint32(len(to))
	if err := unix.Sendto(s.fd, requests, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		for i := range to {
			to[i].err = err
		}
		return
	}
	// The kernel answers while it is asked: what is not there now does not come.
	for {
		n, from, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		if from, ok := from.(*unix.SockaddrNetlink); !ok || from.Pid != 0 {
			continue // not the kernel
		}
		s.answer(s.buf[:n], begin, to)
	}
}

// appendRequest appends a request for the route to a.
func appendRequest(b []byte, seq uint32, a netip.Addr) []byte {
	address, family := a.AsSlice(), uint8(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	n := binary.NativeEndian
	b = n.AppendUint32(b, uint32(requestLength+unix.SizeofRtAttr+len(address)))
	b = n.AppendUint16(b, unix.RTM_GETROUTE)
	b = n.AppendUint16(b, unix.NLM_F_REQUEST)
	b = n.AppendUint32(b, seq)
	b = n.AppendUint32(b, 0) // from: the kernel knows
	b = append(b, family, uint8(len(address)*8), 0, 0, 0, 0, 0, 0)
	b = n.AppendUint32(b, unix.RTM_F_LOOKUP_TABLE)
	b = n.AppendUint16(b, uint16(unix.SizeofRtAttr+len(address)))
	b = n.AppendUint16(b, unix.RTA_DST)
	return append(b, address...)
}

// answer takes the kernel's messages in; the first request had the number begin.
func (s *routeSocket) answer(b []byte, begin uint32, to []found) {
	n := binary.NativeEndian
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(n.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return
		}
		kind, i, data := n.Uint16(b[4:]), n.Uint32(b[8:])-begin, b[unix.SizeofNlMsghdr:length]
		b = b[min((length+3)&^3, len(b)):]
		switch {
		case i >= uint32(len(to)): // late, of a request before
		case kind == unix.NLMSG_ERROR && len(data) >= 4:
			to[i] = found{err: unix.Errno(-int32(n.Uint32(data)))}
		case kind == unix.RTM_NEWROUTE:
			to[i].route, to[i].err = parseRoute(data)
		}
	}
}

func parseRoute(data []byte) (r route, err error) {
	if len(data) < unix.SizeofRtMsg {
		return r, errors.New("the kernel's answer is too short")
	}
	r.kind = data[7]
	for kind, value := range attributes(data[unix.SizeofRtMsg:]) {
		switch {
		case kind == unix.RTA_OIF && len(value) >= 4:
			r.link = int(binary.NativeEndian.Uint32(value))
		case kind == unix.RTA_GATEWAY:
			r.gateway, _ = netip.AddrFromSlice(value)
		case kind == unix.RTA_VIA && len(value) > 2: // its family stands first
			r.gateway, _ = netip.AddrFromSlice(value[2:])
		case kind == unix.RTA_METRICS:
			for kind, value := range attributes(value) {
				if kind == unix.RTAX_MTU && len(value) >= 4 {
					r.mtu = int(binary.NativeEndian.Uint32(value))
				}
			}
		}
	}
	return r, nil
}

// attributes are those of a message, as far as they are whole.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofRtAttr {
			length, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
			if length < unix.SizeofRtAttr || length > len(b) || !yield(kind&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofRtAttr:length]) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}
