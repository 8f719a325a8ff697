package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// MinKernel is the oldest kernel with everything that the balancer's and the
// router's programs need: tcx is the balancer's youngest part, and how devices
// say whether they take frames from XDP is the router's.
const MinKernel = "6.6"

const minKernelCode = 6<<16 | 6<<8

// needRights is the remedy where the kernel refuses.
const needRights = "run as root, or with CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON"

// CheckSystem says in one line what this process or kernel lacks to run
// programs of these kinds.
func CheckSystem(kinds ...ebpf.ProgramType) error {
	code, err := features.LinuxVersionCode()
	if err != nil {
		return fmt.Errorf("read the kernel's version: %w", err)
	}
	if err := kernelTooOld(code); err != nil {
		return err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("raise the limit of locked memory: %w; run as root", err)
	}
	for _, kind := range kinds {
		err := features.HaveProgramType(kind)
		switch {
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("load BPF programs: %w; %s", err, needRights)
		case errors.Is(err, ebpf.ErrNotSupported):
			return fmt.Errorf("this kernel has no BPF programs of kind %v; a kernel of %s or later with CONFIG_BPF_SYSCALL is needed", kind, MinKernel)
		case err != nil:
			return fmt.Errorf("probe for BPF programs of kind %v: %w", kind, err)
		}
	}
	return nil
}

// kernelTooOld refuses versions (as LINUX_VERSION_CODE) before MinKernel.
func kernelTooOld(code uint32) error {
	if code < minKernelCode {
		return fmt.Errorf("Linux %d.%d is too old: %s or later is needed", code>>16, code>>8&0xff, MinKernel)
	}
	return nil
}
