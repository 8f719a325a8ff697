// Package rtnl asks the kernel of one network namespace about its devices, routes,
// neighbours and nexthops, and hears of changes. It is for tables that come by
// the thousand: requests and notifications as they are, without objects of them.
package rtnl

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// receiveBuffer has room for the notifications of a routing daemon's burst (if
	// it does not, all is read anew), and for the refusals of a whole batch, which
	// the kernel queues before any is read.
	receiveBuffer = 8 << 20
	sendBuffer    = 1 << 20
)

// Conn is a socket in the network namespace in which it was opened, on whatever
// thread it is used later.
type Conn struct {
	*netlink.Conn
	namespace *os.File
}

// Open belongs to the network namespace of the calling thread.
func Open() (*Conn, error) {
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	c := &Conn{namespace: namespace}
	if c.Conn, err = c.dial(); err != nil {
		return nil, errors.Join(err, namespace.Close())
	}
	return c, nil
}

func (c *Conn) dial() (*netlink.Conn, error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{NetNS: c.Namespace()})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	// With strict checks the kernel lists the one table that is asked for.
	for _, option := range []netlink.ConnOption{netlink.ExtendedAcknowledge, netlink.GetStrictCheck} {
		if err := conn.SetOption(option, true); err != nil {
			conn.Close()
			return nil, fmt.Errorf("set option %v of netlink: %w; Linux 5.3 or later is needed", option, err)
		}
	}
	if err := errors.Join(conn.SetReadBuffer(receiveBuffer), conn.SetWriteBuffer(sendBuffer)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("enlarge netlink's buffers: %w", err)
	}
	return conn, nil
}

// Namespace is the file descriptor of the network namespace.
func (c *Conn) Namespace() int { return int(c.namespace.Fd()) }

// Close lets go of the socket.
func (c *Conn) Close() error { return errors.Join(c.Conn.Close(), c.namespace.Close()) }

// Reopen has a new socket, on which no rest of an answer can come.
func (c *Conn) Reopen() error {
	conn, err := c.dial()
	if err != nil {
		return err
	}
	c.Conn.Close()
	c.Conn = conn
	return nil
}

// Ask sends one message and returns what it brings.
func (c *Conn) Ask(m netlink.Message) ([]netlink.Message, error) {
	for try := 0; ; try++ {
		replies, err := c.Execute(m)
		if err != nil {
			return nil, errors.Join(err, c.Reopen())
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

// Watch calls heard with the notifications of these groups until ctx ends, and lost
// when some were lost. Both are called by one goroutine.
func (c *Conn) Watch(ctx context.Context, groups []uint32, heard func(netlink.Message), lost func(error)) error {
	conn, err := c.dial()
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
