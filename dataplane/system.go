package dataplane

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// MinKernel is the oldest kernel with everything that the programs need: tcx
// (6.6) is the youngest part.
const MinKernel = "6.6"

const minKernelCode = 6<<16 | 6<<8

// checkSystem says in one line what this process or kernel lacks.
func checkSystem() error {
	if err := checkKernel(); err != nil {
		return err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory: %w; run as root", err)
	}
	for _, p := range []struct {
		kind ebpf.ProgramType
		name string
	}{{ebpf.XDP, "XDP"}, {ebpf.SchedCLS, "tc"}, {ebpf.Syscall, "syscall"}} {
		err := features.HaveProgramType(p.kind)
		switch {
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("load BPF programs: %w; run as root, or with CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON", err)
		case errors.Is(err, ebpf.ErrNotSupported):
			return fmt.Errorf("this kernel has no BPF programs of kind %s; a kernel of %s or later with CONFIG_BPF_SYSCALL is needed", p.name, MinKernel)
		case err != nil:
			return fmt.Errorf("probe for BPF programs of kind %s: %w", p.name, err)
		}
	}
	return nil
}

func checkKernel() error {
	code, err := features.LinuxVersionCode()
	if err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	return kernelTooOld(code)
}

// kernelTooOld refuses versions (as LINUX_VERSION_CODE) before MinKernel.
func kernelTooOld(code uint32) error {
	if code < minKernelCode {
		return fmt.Errorf("Linux %d.%d is too old: %s or later is needed (tcx)", code>>16, code>>8&0xff, MinKernel)
	}
	return nil
}

// findInterfaces resolves names, refusing what is unknown.
func findInterfaces(names []string) ([]net.Interface, error) {
	if len(names) == 0 {
		return nil, errors.New("no interface to attach to; name them under balancers[].interfaces")
	}
	var list []net.Interface
	for _, n := range names {
		i, err := net.InterfaceByName(n)
		if err != nil {
			return nil, fmt.Errorf("interface %s: there is none of that name; name one that `ip link` shows under balancers[].interfaces", n)
		}
		list = append(list, *i)
	}
	return list, nil
}
