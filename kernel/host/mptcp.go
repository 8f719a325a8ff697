package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	attribute "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// pathManager is the kernel's own path manager of Multipath TCP, spoken to by
// generic netlink (ip-mptcp(8) is its tool). It is bound to the network
// namespace in which it was made.
type pathManager struct {
	sockets map[int]*nl.SocketHandle
	family  uint16
}

// What of linux/mptcp.h is used.
const (
	pmName, pmVersion = "mptcp_pm", 1

	pmAddAddr, pmDelAddr, pmGetAddr = 1, 2, 3
	pmSetLimits, pmGetLimits        = 5, 6

	pmAttrAddr, pmAttrAccepted, pmAttrSubflows = 1, 2, 3

	pmAddrFamily, pmAddrID, pmAddr4, pmAddr6, pmAddrPort, pmAddrFlags = 1, 2, 3, 4, 5, 6

	pmFlagSignal = 1

	pmTypeMask = 1<<14 - 1 // an attribute's type without its flags

	// pmMaxSubflows is the most that the kernel lets one connection have beside
	// its first.
	pmMaxSubflows = 8
)

var errNoMPTCP = errors.New("the kernel has no Multipath TCP (CONFIG_MPTCP)")

// openPathManager belongs to the calling thread's network namespace.
func openPathManager() (*pathManager, error) {
	f, err := netlink.GenlFamilyGet(pmName)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoMPTCP
	}
	if err != nil {
		return nil, fmt.Errorf("generic netlink family %s: %w", pmName, err)
	}
	sockets, err := openNetlink(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, err
	}
	return &pathManager{sockets, f.ID}, nil
}

func (p *pathManager) close() {
	for _, s := range p.sockets {
		s.Close()
	}
}

func (p *pathManager) ask(command uint8, flags int, attrs ...*nl.RtAttr) ([][]byte, error) {
	req := nl.NewNetlinkRequest(int(p.family), flags)
	req.Sockets = p.sockets
	req.AddData(&nl.Genlmsg{Command: command, Version: pmVersion})
	for _, a := range attrs {
		req.AddData(a)
	}
	return req.Execute(unix.NETLINK_GENERIC, 0)
}

// endpoint is an address that the kernel tells peers of.
type endpoint struct {
	at     netip.AddrPort
	id     uint8
	signal bool
}

// endpoints lists all, ours and others'.
func (p *pathManager) endpoints() ([]endpoint, error) {
	msgs, err := p.ask(pmGetAddr, unix.NLM_F_DUMP)
	if err != nil {
		return nil, fmt.Errorf("list MPTCP endpoints: %w", err)
	}
	var list []endpoint
	for _, m := range msgs {
		for _, outer := range attributes(m) {
			if outer.Attr.Type&pmTypeMask == pmAttrAddr {
				list = append(list, parseEndpoint(outer.Value))
			}
		}
	}
	return list, nil
}

// attributes are those of a message of generic netlink, whose header has four
// bytes.
func attributes(m []byte) []syscall.NetlinkRouteAttr {
	if len(m) < nl.SizeofGenlmsg {
		return nil
	}
	attrs, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
	if err != nil {
		return nil
	}
	return attrs
}

// parseEndpoint reads an endpoint's attributes; one that is not whole has none.
func parseEndpoint(b []byte) (e endpoint) {
	d, err := attribute.NewAttributeDecoder(b)
	if err != nil {
		return endpoint{}
	}
	var addr netip.Addr
	var port uint16
	for d.Next() {
		switch d.Type() {
		case pmAddrID:
			e.id = d.Uint8()
		case pmAddr4, pmAddr6:
			addr, _ = netip.AddrFromSlice(d.Bytes())
		case pmAddrPort:
			port = d.Uint16()
		case pmAddrFlags:
			e.signal = d.Uint32()&pmFlagSignal != 0
		}
	}
	if d.Err() != nil {
		return endpoint{}
	}
	e.at = netip.AddrPortFrom(addr, port)
	return e
}

// add makes an endpoint that peers are told of, port included. The kernel
// listens there from then on, for joins alone.
func (p *pathManager) add(at netip.AddrPort) error {
	a := nl.NewRtAttr(pmAttrAddr|unix.NLA_F_NESTED, nil)
	family, kind := uint16(unix.AF_INET), pmAddr4
	if at.Addr().Is6() {
		family, kind = unix.AF_INET6, pmAddr6
	}
	a.AddRtAttr(pmAddrFamily, nl.Uint16Attr(family))
	a.AddRtAttr(kind, at.Addr().AsSlice())
	a.AddRtAttr(pmAddrPort, nl.Uint16Attr(at.Port()))
	a.AddRtAttr(pmAddrFlags, nl.Uint32Attr(pmFlagSignal))
	_, err := p.ask(pmAddAddr, unix.NLM_F_ACK, a)
	return err
}

// remove takes an endpoint away, by its id; subflows that came by it end.
func (p *pathManager) remove(e endpoint) error {
	a := nl.NewRtAttr(pmAttrAddr|unix.NLA_F_NESTED, nil)
	a.AddRtAttr(pmAddrID, nl.Uint8Attr(e.id))
	_, err := p.ask(pmDelAddr, unix.NLM_F_ACK, a)
	return err
}

// limits are how many addresses of peers a connection takes, and how many
// subflows it has beside its first.
func (p *pathManager) limits() (accepted, subflows uint32, err error) {
	msgs, err := p.ask(pmGetLimits, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("read MPTCP's limits: %w", err)
	}
	for _, m := range msgs {
		for _, a := range attributes(m) {
			switch a.Attr.Type & pmTypeMask {
			case pmAttrAccepted:
				accepted = binary.NativeEndian.Uint32(a.Value)
			case pmAttrSubflows:
				subflows = binary.NativeEndian.Uint32(a.Value)
			}
		}
	}
	return accepted, subflows, nil
}

func (p *pathManager) setLimits(accepted, subflows uint32) error {
	_, err := p.ask(pmSetLimits, unix.NLM_F_ACK,
		nl.NewRtAttr(pmAttrAccepted, nl.Uint32Attr(accepted)), nl.NewRtAttr(pmAttrSubflows, nl.Uint32Attr(subflows)))
	if err != nil {
		return fmt.Errorf("set MPTCP's limits: %w", err)
	}
	return nil
}
