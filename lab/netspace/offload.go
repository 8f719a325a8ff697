package netspace

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ethtool's older commands, one for each offload; they need neither the
// ethtool program nor feature names (linux/ethtool.h).
const (
	ethtoolSetTXChecksum = 0x17 // ETHTOOL_STXCSUM
	ethtoolSetGRO        = 0x2c // ETHTOOL_SGRO
)

// SetOffloads does `ethtool -K DEV tx off gro on`. With tx checksum offload
// on, a frame that an XDP program sends on (XDP_TX) leaves with an unfinished
// checksum; with GRO on, veth runs native XDP in NAPI, which XDP_TX needs.
func SetOffloads(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket for ethtool: %w", err)
	}
	defer unix.Close(fd)
	for _, set := range []struct {
		name           string
		command, value uint32
	}{{"tx off", ethtoolSetTXChecksum, 0}, {"gro on", ethtoolSetGRO, 1}} {
		if err := ethtool(fd, device, set.command, set.value); err != nil {
			return fmt.Errorf("set offload %s of %s: %w", set.name, device, err)
		}
	}
	return nil
}

// ethtool is one SIOCETHTOOL with a struct ethtool_value.
func ethtool(fd int, device string, command, value uint32) error {
	argument := [2]uint32{command, value}
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // struct ifreq is 40 bytes
	}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	request.data = unsafe.Pointer(&argument)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}

// AttachPass puts a program that passes everything on a device: frames that
// the peer's XDP program sends by XDP_TX arrive only where an XDP program
// stands too. It is attached by netlink, not by a link, so that it stays for
// the device's life without a process or a pin.
func AttachPass(l netlink.Link) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:    "fl_lab_pass",
		Type:    ebpf.XDP,
		License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, 2), // XDP_PASS
			asm.Return(),
		},
	})
	if err != nil {
		return fmt.Errorf("load XDP_PASS program: %w", err)
	}
	defer prog.Close()
	if err := netlink.LinkSetXdpFd(l, prog.FD()); err != nil {
		return fmt.Errorf("attach XDP_PASS to %s: %w", l.Attrs().Name, err)
	}
	return nil
}
