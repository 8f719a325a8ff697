package probe

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/wire"
)

// rawSocket sends UDP from any source port. It receives nothing.
type rawSocket struct {
	six bool
	mu  sync.Mutex
	fd  int // -1: closed
}

func openRaw(six bool) (*rawSocket, error) {
	family := unix.AF_INET
	if six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return nil, fmt.Errorf("open a raw socket, to answer from the ports that probes ask for: %w; run as root, or with CAP_NET_RAW", err)
	}
	// A raw socket is given a copy of every UDP packet; this filter takes none.
	none := unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &none)
	if err == nil && six {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_CHECKSUM, 6)
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return &rawSocket{six: six, fd: fd}, nil
}

func (r *rawSocket) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd >= 0 {
		unix.Close(r.fd)
	}
	r.fd = -1
}

// send sends data as UDP with the flow's addresses, ports and label.
func (r *rawSocket) send(data []byte, f pathsel.Flow, ttl uint8) error {
	b := make([]byte, 8, 8+len(data))
	binary.BigEndian.PutUint16(b, f.SrcPort)
	binary.BigEndian.PutUint16(b[2:], f.DstPort)
	binary.BigEndian.PutUint16(b[4:], uint16(8+len(data)))
	b = append(b, data...)
	if !r.six { // for IPv6 the kernel does it
		sum := wire.TransportChecksum(f.Src, f.Dst, protoUDP, b)
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(b[6:], sum)
	}
	control := sourceControl(hopControl(r.six, ttl, f.Label), f.Src)
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: f.Dst.As16()}
	if !r.six {
		to = &unix.SockaddrInet4{Addr: f.Dst.As4()}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fd < 0 {
		return net.ErrClosed
	}
	return unix.Sendmsg(r.fd, b, control, to, 0)
}
