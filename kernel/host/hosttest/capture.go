package hosttest

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// Capture hands every packet that arrives at or leaves an interface to a
// function, parsed, until it is closed.
type Capture struct {
	file *os.File
	done sync.WaitGroup
}

// Listen starts a capture in the namespace. Packets are handed over one at a
// time, with whether they leave.
func (n *Namespace) Listen(iface string, f func(p *wire.Parsed, leaves bool)) (*Capture, error) {
	c := &Capture{}
	err := n.Do(func() error {
		dev, err := net.InterfaceByName(iface)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}); err != nil {
			unix.Close(fd)
			return err
		}
		c.file = os.NewFile(uintptr(fd), "capture")
		return nil
	})
	if err != nil {
		return nil, err
	}
	raw, err := c.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	c.done.Go(func() {
		b := make([]byte, 1<<17)
		for {
			var size int
			var from unix.Sockaddr
			var got error
			err := raw.Read(func(fd uintptr) bool {
				size, from, got = unix.Recvfrom(int(fd), b, 0)
				return !errors.Is(got, unix.EAGAIN)
			})
			if err != nil {
				return
			}
			if got != nil {
				continue
			}
			ll, _ := from.(*unix.SockaddrLinklayer)
			f(wire.Parse(b[:size]), ll != nil && ll.Pkttype == unix.PACKET_OUTGOING)
		}
	})
	return c, nil
}

// Close ends the capture; the function is not called afterwards.
func (c *Capture) Close() {
	_ = c.file.SetReadDeadline(time.Now())
	c.file.Close()
	c.done.Wait()
}
