package kernel

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Frames sends frames on any interface of a network namespace, as many a second as
// it was opened for; as many may go in one burst. One goroutine at a time uses it.
type Frames struct {
	fd         int
	rate, left float64
	filled     time.Time
}

// OpenFrames belongs to the calling thread's network namespace.
func OpenFrames(rate int) (*Frames, error) {
	// Protocol 0: the socket sends and receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w; run as root, or with CAP_NET_RAW", err)
	}
	return &Frames{fd, float64(rate), float64(rate), time.Now()}, nil
}

// Take says whether n frames may be sent now.
func (f *Frames) Take(n int, now time.Time) bool {
	f.left = min(f.rate, f.left+f.rate*now.Sub(f.filled).Seconds())
	f.filled = now
	if f.left < float64(n) {
		return false
	}
	f.left -= float64(n)
	return true
}

// Send sends a frame.
func (f *Frames) Send(ifindex uint32, frame []byte) error {
	return unix.Sendto(f.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: int(ifindex), Halen: 6})
}

// Close closes the socket.
func (f *Frames) Close() {
	if f != nil {
		unix.Close(f.fd)
		f.fd = -1 // its number may be another file's when Close is called again
	}
}
