package mptcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	rtnetlink "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Of linux/mptcp_pm.h.
const (
	pmName, pmVersion, pmEvents = "mptcp_pm", 1, "mptcp_pm_events"

	commandGetLimits      = 6
	commandRemove         = 9
	commandSubflowCreate  = 10
	commandSubflowDestroy = 11

	attrAddr, attrSubflows, attrToken, attrLocID, attrAddrRemote = 1, 3, 4, 5, 6

	addrFamily, addrID, addr4, addr6, addrPort = 1, 2, 3, 4, 5

	eventSubClosed = 11

	eventToken = 1
	eventError = 12
	eventReset = 16
)

// ErrNoMPTCP is that of a kernel without Multipath TCP.
var ErrNoMPTCP = errors.New("the kernel has no Multipath TCP (CONFIG_MPTCP), or none whose paths programs may manage (Linux 5.19 or later)")

// kernel is the kernel's path manager, in the network namespace in which it
// was opened.
type kernel struct {
	family uint16
	ask    *netlink.Conn
	listen *netlink.Conn
}

// openKernel is for the calling thread's network namespace.
func openKernel() (k *kernel, err error) {
	family, err := rtnetlink.GenlFamilyGet(pmName)
	if errors.Is(err, unix.ENOENT) {
		return nil, ErrNoMPTCP
	}
	if err != nil {
		return nil, fmt.Errorf("generic netlink family %s: %w", pmName, err)
	}
	group := uint32(0)
	for _, g := range family.Groups {
		if g.Name == pmEvents {
			group = g.ID
		}
	}
	if group == 0 {
		return nil, ErrNoMPTCP
	}
	k = &kernel{family: family.ID}
	if k.ask, err = netlink.Dial(unix.NETLINK_GENERIC, nil); err != nil {
		return nil, fmt.Errorf("open netlink for MPTCP: %w", err)
	}
	if k.listen, err = netlink.Dial(unix.NETLINK_GENERIC, nil); err == nil {
		err = k.listen.JoinGroup(group)
	}
	if err != nil {
		return nil, errors.Join(listenError(err), k.close())
	}
	return k, nil
}

// listenError is why there are no events.
func listenError(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("listen for MPTCP's events: %w; run as root (CAP_NET_ADMIN)", unix.EPERM)
	}
	return fmt.Errorf("listen for MPTCP's events: %w", err)
}

func (k *kernel) close() error {
	err := k.ask.Close()
	if k.listen != nil {
		err = errors.Join(err, k.listen.Close())
	}
	return err
}

// event is one of the path manager's.
type event struct {
	kind  uint8
	token uint32
	// Of a subflow that was closed: the error as a number of errno, and the
	// reason that the peer gave with its reset (RFC 8684, section 3.6), or 0.
	err   unix.Errno
	reset uint32
}

// events waits for some, until the time given or until ctx ends. Nil: there
// were none, or more than the kernel could keep.
func (k *kernel) events(ctx context.Context, until time.Time) ([]event, error) {
	stop := context.AfterFunc(ctx, func() { _ = k.listen.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := k.listen.SetReadDeadline(until); err != nil {
		return nil, err
	}
	// It may have ended before the deadline was set.
	if ctx.Err() != nil {
		return nil, nil
	}
	messages, err := k.listen.Receive()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EINTR):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listen for MPTCP's events: %w", err)
	}
	var list []event
	for _, m := range messages {
		if e, ok := parseEvent(m.Data); ok {
			list = append(list, e)
		}
	}
	return list, nil
}

// parseEvent reads a message of generic netlink, whose header has four bytes.
func parseEvent(b []byte) (e event, ok bool) {
	if len(b) < 4 {
		return e, false
	}
	e.kind = b[0]
	d, err := netlink.NewAttributeDecoder(b[4:])
	if err != nil {
		return e, false
	}
	for d.Next() {
		switch d.Type() {
		case eventToken:
			e.token = d.Uint32()
		case eventError:
			e.err = unix.Errno(d.Uint8())
		case eventReset:
			e.reset = d.Uint32()
		}
	}
	return e, d.Err() == nil
}

// create opens a subflow of the connection. The local port may be 0: the
// kernel chooses. id is the local address's and port's within the connection, 1 to 255.
func (k *kernel) create(token uint32, id uint8, local, remote netip.AddrPort) error {
	return k.subflow(commandSubflowCreate, token, id, local, remote)
}

// destroy ends a subflow.
func (k *kernel) destroy(s *Subflow) error {
	return k.subflow(commandSubflowDestroy, s.Token, s.LocalID, s.Local, s.Remote)
}

// remove makes the kernel forget what id stands for. It tells the peer, which
// ends a subflow that still has the id.
func (k *kernel) remove(token uint32, id uint8) error {
	return k.command(commandRemove, func(e *netlink.AttributeEncoder) {
		e.Uint32(attrToken, token)
		e.Uint8(attrLocID, id)
	})
}

func (k *kernel) subflow(command uint8, token uint32, id uint8, local, remote netip.AddrPort) error {
	return k.command(command, func(e *netlink.AttributeEncoder) {
		e.Nested(attrAddr, func(e *netlink.AttributeEncoder) error {
			e.Uint8(addrID, id)
			return encodeAddr(e, local)
		})
		e.Uint32(attrToken, token)
		e.Nested(attrAddrRemote, func(e *netlink.AttributeEncoder) error { return encodeAddr(e, remote) })
	})
}

// command asks for something and waits for the answer.
func (k *kernel) command(command uint8, encode func(*netlink.AttributeEncoder)) error {
	e := netlink.NewAttributeEncoder()
	encode(e)
	attrs, err := e.Encode()
	if err != nil {
		return err
	}
	_, err = k.execute(command, attrs, netlink.Acknowledge)
	return err
}

func (k *kernel) execute(command uint8, attrs []byte, flags netlink.HeaderFlags) ([]netlink.Message, error) {
	return k.ask.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(k.family), Flags: netlink.Request | flags},
		Data:   append([]byte{command, pmVersion, 0, 0}, attrs...),
	})
}

// limit is how many subflows beside the first the kernel's own path manager
// takes from peers, for a connection.
func (k *kernel) limit() (int, error) {
	messages, err := k.execute(commandGetLimits, nil, 0)
	if err != nil || len(messages) == 0 || len(messages[0].Data) < 4 {
		return 0, errors.Join(errors.New("the kernel does not say how many subflows it takes (ip mptcp limits)"), err)
	}
	d, err := netlink.NewAttributeDecoder(messages[0].Data[4:])
	if err != nil {
		return 0, err
	}
	limit := 0
	for d.Next() {
		if d.Type() == attrSubflows {
			limit = int(d.Uint32())
		}
	}
	return limit, d.Err()
}

func encodeAddr(e *netlink.AttributeEncoder, a netip.AddrPort) error {
	family, kind := uint16(unix.AF_INET), uint16(addr4)
	if a.Addr().Is6() {
		family, kind = unix.AF_INET6, addr6
	}
	e.Uint16(addrFamily, family)
	e.Bytes(kind, a.Addr().AsSlice())
	if a.Port() != 0 {
		e.Uint16(addrPort, a.Port())
	}
	return nil
}
