package kernel

import (
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// linkInfo is the head of struct bpf_link_info, up to what the link is at.
type linkInfo struct {
	kind, id, program, _ uint32
	// at is a device's index, and behind it the place at tc; of a cgroup both are its id.
	at [2]uint32
}

// Kinds of links, enum bpf_link_type.
const (
	linkCgroup = 3
	linkXDP    = 6
	linkTCX    = 11
)

// detached says that l is at nothing any more, as Where does. An agent asks forty times a
// second: this is the system call and nothing else, not even what Go has around calls that
// may block.
func detached(l link.Link) bool {
	of, ok := l.(interface{ FD() int })
	if !ok {
		at, err := Where(l)
		return err == nil && at == 0
	}
	var info linkInfo
	ask := struct {
		fd, size uint32
		info     unsafe.Pointer
	}{uint32(of.FD()), uint32(unsafe.Sizeof(info)), unsafe.Pointer(&info)}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&ask)), unsafe.Sizeof(ask))
	runtime.KeepAlive(&info)
	runtime.KeepAlive(l)
	if errno != 0 {
		return false // which says nothing
	}
	switch info.kind {
	case linkCgroup:
		return info.at == [2]uint32{}
	case linkXDP, linkTCX:
		return info.at[0] == 0
	}
	return false
}
