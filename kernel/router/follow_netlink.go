package router

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/ethtool"
)

// rtnetlink asks the kernel of one network namespace, on whatever thread it is
// used.
type rtnetlink struct {
	conn      *netlink.Conn
	namespace *os.File
	offloads  *ethtool.Socket
}

// receiveBuffer has room for the notifications of a routing daemon's burst; if
// it does not, all is read anew.
const receiveBuffer = 8 << 20

// openKernel belongs to the network namespace of the calling thread.
func openKernel() (*rtnetlink, error) {
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	k := &rtnetlink{namespace: namespace}
	if k.offloads, err = ethtool.Open(); err != nil {
		namespace.Close()
		return nil, err
	}
	if k.conn, err = k.dial(); err != nil {
		return nil, errors.Join(err, k.offloads.Close(), namespace.Close())
	}
	return k, nil
}

func (k *rtnetlink) dial() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: int(k.namespace.Fd())})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	// With strict checks the kernel lists the one table that is asked for.
	for _, option := range []netlink.ConnOption{netlink.ExtendedAcknowledge, netlink.GetStrictCheck} {
		if err := conn.SetOption(option, true); err != nil {
			conn.Close()
			return nil, fmt.Errorf("set option %v of netlink: %w; Linux %s or later is needed", option, err, kernel.MinKernel)
		}
	}
	if err := conn.SetReadBuffer(receiveBuffer); err != nil {
		conn.Close()
		return nil, fmt.Errorf("enlarge netlink's buffer: %w", err)
	}
	return conn, nil
}

func (k *rtnetlink) close() error {
	return errors.Join(k.conn.Close(), k.offloads.Close(), k.namespace.Close())
}

// list asks for all objects of a kind. data is the header that the kind has,
// with what narrows the list behind it.
func (k *rtnetlink) list(kind uint16, data []byte) ([]netlink.Message, error) {
	for try := 0; ; try++ {
		replies, err := k.conn.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | netlink.Dump}, Data: data,
		})
		if err != nil {
			return nil, errors.Join(err, k.reopen())
		}
		interrupted := false
		for _, r := range replies {
			interrupted = interrupted || r.Header.Flags&netlink.DumpInterrupted != 0
		}
		// What changes while it is listed may stand in the list twice or not
		// at all; whoever changes it all the time is heard of again.
		if !interrupted || try == 5 {
			return replies, nil
		}
	}
}

// reopen has a new socket, on which no rest of an answer can come.
func (k *rtnetlink) reopen() error {
	conn, err := k.dial()
	if err != nil {
		return err
	}
	k.conn.Close()
	k.conn = conn
	return nil
}

// groups are the notifications that concern a router.
var groups = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_NEXTHOP,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
}

// watch calls heard with every notification until ctx ends, and lost when some
// were lost. Both are called by one goroutine.
func (k *rtnetlink) watch(ctx context.Context, heard func(netlink.Message), lost func(error)) error {
	conn, err := k.dial()
	if err != nil {
		return err
	}
	for _, group := range groups {
		if err := conn.JoinGroup(group); err != nil {
			conn.Close()
			return fmt.Errorf("watch the kernel's tables: %w", err)
		}
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	go func() {
		for ctx.Err() == nil {
			messages, err := conn.Receive()
			if err != nil {
				if ctx.Err() != nil || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EBADF) {
					return
				}
				lost(err)
				continue
			}
			for _, m := range messages {
				heard(m)
			}
		}
	}()
	return nil
}
