// Package ethtool reads what network devices do by themselves, their offloads,
// by the older commands of linux/ethtool.h that answer with one number.
package ethtool

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Command asks for one setting.
type Command uint32

// The commands.
const (
	TXChecksum Command = 0x16 // 1: it finishes checksums of what it sends
	Flags      Command = 0x25 // FlagRXVLAN and others
	GRO        Command = 0x2b // 1: it merges what it receives
)

// FlagRXVLAN, of Flags: the device takes VLAN tags off what it receives and
// hands them over beside the frame, where XDP programs do not see them.
const FlagRXVLAN = 1 << 8

// Socket asks about the devices of one network namespace.
type Socket struct{ fd int }

// Open belongs to the network namespace of the calling thread.
func Open() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket to ask devices for their offloads: %w", err)
	}
	return &Socket{fd}, nil
}

// Close lets go of it.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Get reads a setting. A device that has no such setting is an error
// (EOPNOTSUPP), as is one that does not exist (ENODEV).
func (s *Socket) Get(device string, c Command) (uint32, error) {
	argument := [2]uint32{uint32(c), 0} // struct ethtool_value
	var request struct {                // struct ifreq, 40 bytes
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	request.data = unsafe.Pointer(&argument)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return 0, fmt.Errorf("offloads of %s: %w", device, errno)
	}
	return argument[1], nil
}

// On says whether a setting is on here, in the calling thread's network
// namespace; not: also where it cannot be read.
func On(device string, c Command) bool { return isOn(device, c, true) }

// Off says whether a setting is off here; not: also where it cannot be read.
func Off(device string, c Command) bool { return isOn(device, c, false) }

func isOn(device string, c Command, want bool) bool {
	s, err := Open()
	if err != nil {
		return false
	}
	defer s.Close()
	v, err := s.Get(device, c)
	return err == nil && (v != 0) == want
}
