package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// asker asks the kernel for one socket at a time, forty times a second for as long as an
// agent lives, so that what is around the question is most of what it costs: libraries
// read answers into buffers that the collector takes away again, and each call that might
// block wakes the thread with which Go watches over such calls. The kernel answers before
// it returns from the question, so neither call blocks (but for moments in which another
// process lists sockets). It is bound to the namespace in which it was made; safe for use
// by several goroutines, one after another.
type asker struct {
	mu       sync.Mutex
	fd       int
	sequence uint32
	question [unix.NLMSG_HDRLEN + 56]byte
	answer   [unix.NLMSG_HDRLEN + 4]byte // its head, and an error's number
}

// openAsker belongs to the calling thread's network namespace.
func openAsker() (*asker, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil { // the kernel
		unix.Close(fd)
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &asker{fd: fd}, nil
}

func (a *asker) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fd >= 0 {
		unix.Close(a.fd)
		a.fd = -1
	}
}

// takes says whether a socket would take the first packet of a connection to local.
func (a *asker) takes(protocol uint8, local netip.AddrPort) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sequence++
	q := a.question[:]
	binary.NativeEndian.PutUint32(q, uint32(len(q)))
	binary.NativeEndian.PutUint16(q[4:], nl.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(q[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(q[8:], a.sequence)
	copy(q[unix.NLMSG_HDRLEN:], exactRequest(protocol, local))
	if _, err := a.raw(unix.SYS_WRITE, q); err != nil {
		return false, fmt.Errorf("ask for a socket: %w", err)
	}
	for {
		n, err := a.raw(unix.SYS_READ, a.answer[:])
		if err != nil {
			return false, fmt.Errorf("ask for a socket: %w", err)
		}
		if n < len(a.answer) || binary.NativeEndian.Uint32(a.answer[8:]) != a.sequence {
			continue // to a question that was given up
		}
		if binary.NativeEndian.Uint16(a.answer[4:]) != unix.NLMSG_ERROR {
			return true, nil
		}
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(a.answer[unix.NLMSG_HDRLEN:])))
		if errors.Is(errno, unix.ENOENT) {
			return false, nil
		}
		return false, errno
	}
}

// raw reads or writes b.
func (a *asker) raw(call uintptr, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(call, uintptr(a.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	runtime.KeepAlive(b)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
