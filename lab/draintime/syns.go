package draintime

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

// syns are the new connections that come to a machine's stack: SYNs, each once, with the
// kernel's time, which no busy processor delays. A tunnel's outer header is off by then.
type syns struct {
	file *os.File
	done sync.WaitGroup

	mu   sync.Mutex
	n    int64
	last time.Time
	// known are those that were seen, by where from: a repeated one is no new connection.
	known map[netip.AddrPort]uint32 // its sequence number
}

// filter takes SYNs without ACK of TCP over IPv4 to port, without options in the IP
// header, as the lab's clients send them.
func filter(port int) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2}, // EtherType
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: wire.EtherTypeIPv4, SkipTrue: 8},
		bpf.LoadAbsolute{Off: 23, Size: 1}, // protocol
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_TCP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: 36, Size: 2}, // destination port
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(port), SkipTrue: 4},
		bpf.LoadAbsolute{Off: 47, Size: 1}, // flags
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0x12},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0x02, SkipTrue: 1},
		bpf.RetConstant{Val: 128},
		bpf.RetConstant{Val: 0},
	}
}

// watchSYNs begins on the calling thread's network.
func watchSYNs(device string, port int) (*syns, error) {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	code, err := bpf.Assemble(filter(port))
	if err != nil {
		return nil, err
	}
	raw := make([]unix.SockFilter, len(code))
	for i, c := range code {
		raw[i] = unix.SockFilter{Code: c.Op, Jt: c.Jt, Jf: c.Jf, K: c.K}
	}
	// Protocol 0: nothing arrives before the filter stands.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open capture socket: %w", err)
	}
	all := uint16(unix.ETH_P_ALL)
	err = errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(raw)), Filter: &raw[0]}),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: link.Index}),
	)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("capture on %s: %w", device, err)
	}
	s := &syns{file: os.NewFile(uintptr(fd), "capture"), known: map[netip.AddrPort]uint32{}}
	conn, err := s.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	s.done.Go(func() {
		frame, control := make([]byte, 128), make([]byte, 64)
		for {
			var n, more int
			var got error
			if conn.Read(func(fd uintptr) bool {
				n, more, _, _, got = unix.Recvmsg(int(fd), frame, control, 0)
				return !errors.Is(got, unix.EAGAIN)
			}) != nil {
				return // closed
			}
			if got == nil {
				s.take(wire.Parse(frame[:n]), control[:more])
			}
		}
	})
	return s, nil
}

func (s *syns) take(p *wire.Parsed, control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || p.L4 == 0 || len(p.Frame) < p.L4+8 {
		return
	}
	from, sequence := netip.AddrPortFrom(p.Src, p.SrcPort), binary.BigEndian.Uint32(p.Frame[p.L4+4:])
	for _, m := range messages {
		if m.Header.Type != unix.SO_TIMESTAMPNS || len(m.Data) < 16 {
			continue
		}
		at := time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		s.mu.Lock()
		if was, ok := s.known[from]; !ok || was != sequence {
			s.known[from] = sequence
			s.n++
			s.last = at
		}
		s.mu.Unlock()
	}
}

func (s *syns) count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// newest is when the last new connection came.
func (s *syns) newest() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *syns) close() {
	_ = s.file.Close()
	s.done.Wait()
}
