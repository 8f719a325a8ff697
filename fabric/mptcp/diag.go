package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Of linux/sock_diag.h, inet_diag.h and mptcp.h.
const (
	sockDiagByFamily = 20

	inetDiagInfo    = 2
	inetDiagULPInfo = 19
	ulpInfoMPTCP    = 3

	subflowTokenLocal = 2
	subflowFlags      = 8
	subflowIDRemote   = 9
	subflowIDLocal    = 10

	flagCapableLocal = 1 << 1 // this side asked for Multipath TCP
	flagJoinLocal    = 1 << 3 // this side asked to join
	flagEstablished  = 1 << 6

	// transient states have no subflow worth looking at: TIME_WAIT, CLOSE,
	// LISTEN, NEW_SYN_RECV.
	diagStates = 1<<stateEstablished | 1<<stateSynSent | 1<<3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<11

	diagRequestSize = 56 // struct inet_diag_req_v2
	diagMessageSize = 72 // struct inet_diag_msg
)

// diag asks the kernel which subflows there are (sock_diag(7)).
type diag struct{ conn *netlink.Conn }

// openDiag is for the calling thread's network namespace.
func openDiag() (*diag, error) {
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return nil, fmt.Errorf("open netlink for sockets: %w", err)
	}
	return &diag{c}, nil
}

func (d *diag) close() error { return d.conn.Close() }

// subflows lists all, of both families.
func (d *diag) subflows() (list []Subflow, err error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		b := make([]byte, diagRequestSize)
		b[0], b[1], b[2] = family, unix.IPPROTO_TCP, 1<<(inetDiagInfo-1)
		binary.NativeEndian.PutUint32(b[4:], diagStates)
		messages, err := d.conn.Execute(netlink.Message{
			Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request | netlink.Dump}, Data: b,
		})
		if errors.Is(err, unix.ENOENT) {
			return nil, fmt.Errorf("list sockets: %w; the kernel needs CONFIG_INET_TCP_DIAG", err)
		}
		if err != nil {
			return nil, fmt.Errorf("list sockets: %w", err)
		}
		for _, m := range messages {
			if s, ok := parseSubflow(m.Data); ok {
				list = append(list, s)
			}
		}
	}
	return list, nil
}

// parseSubflow reads a struct inet_diag_msg and its attributes; false: it is no
// subflow of Multipath TCP.
func parseSubflow(b []byte) (s Subflow, ok bool) {
	if len(b) < diagMessageSize {
		return s, false
	}
	addr := func(b []byte) netip.Addr { return netip.AddrFrom16([16]byte(b)).Unmap() }
	if b[0] == unix.AF_INET {
		addr = func(b []byte) netip.Addr { return netip.AddrFrom4([4]byte(b)) }
	}
	s.State = b[1]
	s.Local = netip.AddrPortFrom(addr(b[8:24]), binary.BigEndian.Uint16(b[4:]))
	s.Remote = netip.AddrPortFrom(addr(b[24:40]), binary.BigEndian.Uint16(b[6:]))
	d, err := netlink.NewAttributeDecoder(b[diagMessageSize:])
	if err != nil {
		return s, false
	}
	for d.Next() {
		switch d.Type() {
		case inetDiagInfo:
			s.Info = parseInfo(d.Bytes())
		case inetDiagULPInfo:
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					if d.Type() == ulpInfoMPTCP {
						d.Nested(s.parse)
						ok = true
					}
				}
				return nil
			})
		}
	}
	return s, ok && d.Err() == nil
}

// parse reads the attributes MPTCP_SUBFLOW_ATTR_….
func (s *Subflow) parse(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch d.Type() {
		case subflowTokenLocal:
			s.Token = d.Uint32()
		case subflowFlags:
			flags := d.Uint32()
			s.Established = flags&flagEstablished != 0
			s.Client = flags&(flagCapableLocal|flagJoinLocal) != 0
		case subflowIDRemote:
			s.RemoteID = d.Uint8()
		case subflowIDLocal:
			s.LocalID = d.Uint8()
		}
	}
	return nil
}

// parseInfo reads the struct tcp_info of a kernel that may know more fields,
// or fewer.
func parseInfo(b []byte) (i Info) {
	var whole [256]byte
	copy(whole[:], b)
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(whole[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(whole[at:]) }
	return Info{
		Retransmits: whole[2], Probes: whole[3], Backoff: whole[4],
		Unacked: u32(24), RTT: u32(68),
		Acked: u64(120), Received: u64(128), Rate: u64(160),
	}
}
