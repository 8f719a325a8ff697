package router_test

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// trace is the routers that answer probes from host-0 to host-1 with a time to
// live of 1, 2 and 3, all of which select a port of leaf-0.
func (r *routerRig) trace(six bool, port int) (nodes []string) {
	r.t.Helper()
	for ttl := 1; ttl <= 3; ttl++ {
		flow := pathsel.Flow{Src: r.from[six], Dst: r.to[six], Proto: 17}
		for flow.SrcPort == 0 || flow.DstPort == 0 {
			// leaf-0 receives what the probe begins with.
			if err := r.sel.Encode(&flow, []pathsel.Step{{TTL: uint8(ttl), Port: uint8(port)}}, r.random.Uint64()); err != nil {
				r.t.Fatal(err)
			}
		}
		var from netip.Addr
		if err := r.In("host-0", func() (err error) { from, err = refused(flow, ttl); return err }); err != nil {
			r.t.Fatalf("time to live %d, port %d: %v", ttl, port, err)
		}
		node, ok := r.Topology().ByAddress(from)
		if !ok {
			r.t.Fatalf("%v answers, which no node has", from)
		}
		nodes = append(nodes, strings.TrimPrefix(r.Topology().Nodes[node].Name, r.Name+"-"))
	}
	return nodes
}

// refused sends a datagram with that time to live and says who refuses it.
func refused(f pathsel.Flow, ttl int) (from netip.Addr, err error) {
	family, level, ttlOption, errOption := unix.AF_INET, unix.IPPROTO_IP, unix.IP_TTL, unix.IP_RECVERR
	if f.Dst.Is6() {
		family, level, ttlOption, errOption = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, unix.IPV6_RECVERR
	}
	s, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return from, err
	}
	defer unix.Close(s)
	for _, do := range []func() error{
		func() error { return unix.SetsockoptInt(s, level, ttlOption, ttl) },
		func() error { return unix.SetsockoptInt(s, level, errOption, 1) },
		func() error { return unix.Bind(s, socketAddress(f.Src, f.SrcPort)) },
		func() error { return unix.Connect(s, socketAddress(f.Dst, f.DstPort)) },
		func() error { _, err := unix.Write(s, []byte("probe")); return err },
	} {
		if err := do(); err != nil {
			return from, err
		}
	}
	ready, err := unix.Poll([]unix.PollFd{{Fd: int32(s)}}, int(daemontest.Patience.Milliseconds()))
	if err != nil {
		return from, err
	}
	if ready == 0 {
		return from, errors.New("nobody refuses it")
	}
	control := make([]byte, 256)
	_, n, _, _, err := unix.Recvmsg(s, make([]byte, 64), control, unix.MSG_ERRQUEUE)
	if err != nil {
		return from, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return from, err
	}
	for _, m := range messages {
		if int(m.Header.Level) == level && int(m.Header.Type) == errOption {
			return offender(m.Data), nil
		}
	}
	return from, errors.New("no error in the error queue")
}

// offender is the address behind a struct sock_extended_err.
func offender(b []byte) netip.Addr {
	const extended = 16
	b = b[extended:]
	if len(b) >= 24 && b[0] == unix.AF_INET6 {
		return netip.AddrFrom16([16]byte(b[8:24]))
	}
	return netip.AddrFrom4([4]byte(b[4:8]))
}

func socketAddress(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}
}
