package doctor

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host"
)

// minKernel is the oldest kernel with everything we use; tcx is the youngest.
const (
	minMajor = 6
	minMinor = 6
)

// capability is one of the kernel's, by its bit (linux/capability.h).
type capability struct {
	bit  uint
	name string
}

var netAdmin = capability{12, "CAP_NET_ADMIN"}

// capabilities that the daemons of balancers, servers, switches and routers need.
var capabilities = []capability{netAdmin, {13, "CAP_NET_RAW"}, {21, "CAP_SYS_ADMIN"}}

// privileges: loading BPF, marking sockets, mounting bpffs.
func (r *report) privileges() {
	if r.capable(capabilities...) {
		r.ok(privileges, "root's, as loading BPF programs needs")
	}
}

const privileges = "privileges"

// capable tells whether this process has the capabilities, and complains if not.
func (r *report) capable(wanted ...capability) bool {
	var mask uint64
	data, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(data)) {
			if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
				_, err = fmt.Sscanf(strings.TrimSpace(hex), "%x", &mask)
			}
		}
	}
	if err != nil {
		r.warn(privileges, "cannot be read: "+err.Error(), "run as root")
		return false
	}
	var missing []string
	for _, c := range wanted {
		if mask>>c.bit&1 == 0 {
			missing = append(missing, c.name)
		}
	}
	if len(missing) > 0 {
		r.fail(privileges, "this process lacks "+strings.Join(missing, ", "), "run as root (sudo), or with these capabilities")
		return false
	}
	return true
}

// kernel: what the programs use, found by asking the kernel for it.
func (r *report) kernel(agent bool) {
	code, err := features.LinuxVersionCode()
	if err != nil {
		r.warn("kernel", "version cannot be read: "+err.Error(), "")
	} else {
		version := fmt.Sprintf("Linux %d.%d", code>>16, code>>8&0xff)
		if code < minMajor<<16|minMinor<<8 {
			r.fail("kernel", version, fmt.Sprintf("install Linux %d.%d or later: tcx needs it", minMajor, minMinor))
		} else {
			r.ok("kernel", version)
		}
	}
	type probe struct {
		name, since string
		ask         func() error
	}
	helper := func(t ebpf.ProgramType, f asm.BuiltinFunc) func() error {
		return func() error { return features.HaveProgramHelper(t, f) }
	}
	program := func(t ebpf.ProgramType) func() error { return func() error { return features.HaveProgramType(t) } }
	probes := []probe{
		{"XDP programs", "4.8", program(ebpf.XDP)},
		{"tc programs", "4.1", program(ebpf.SchedCLS)},
		{"syscall programs", "5.14", program(ebpf.Syscall)},
		{"BPF instruction set v4", "6.6", features.HaveV4ISA},
		{"ring buffer", "5.8", func() error { return features.HaveMapType(ebpf.RingBuf) }},
		{"bpf_jiffies64 in XDP", "5.6", helper(ebpf.XDP, asm.FnJiffies64)},
		{"bpf_xdp_adjust_head", "4.10", helper(ebpf.XDP, asm.FnXdpAdjustHead)},
	}
	if agent {
		probes = append(probes,
			probe{"sockops programs", "4.13", program(ebpf.SockOps)},
			probe{"socket storage", "5.2", func() error { return features.HaveMapType(ebpf.SkStorage) }},
			probe{"bpf_skc_lookup_tcp in XDP", "5.2", helper(ebpf.XDP, asm.FnSkcLookupTcp)},
			probe{"bpf_skc_to_tcp_sock in tc", "5.9", helper(ebpf.SchedCLS, asm.FnSkcToTcpSock)},
		)
	}
	var have []string
	for _, p := range probes {
		err := p.ask()
		switch {
		case err == nil:
			have = append(have, p.name)
		case errors.Is(err, ebpf.ErrNotSupported):
			r.fail("kernel: "+p.name, "this kernel has none", "use Linux "+p.since+" or later with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT")
		default:
			r.warn("kernel: "+p.name, "cannot be asked for: "+err.Error(), "run as root")
		}
	}
	if len(have) > 0 {
		r.ok("kernel: features", strings.Join(have, ", "))
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		r.fail("kernel: BTF", "/sys/kernel/btf/vmlinux is missing", "use a kernel with CONFIG_DEBUG_INFO_BTF (Debian's and most others have it)")
	} else {
		r.ok("kernel: BTF", "/sys/kernel/btf/vmlinux")
	}
}

// jit: without it every packet is interpreted.
func (r *report) jit() {
	switch v := sysctl("net/core/bpf_jit_enable"); v {
	case "0":
		r.warn("bpf jit", "net.core.bpf_jit_enable is 0: programs are interpreted, about ten times slower", "sysctl -w net.core.bpf_jit_enable=1")
	case "":
		r.ok("bpf jit", "setting not visible from this network namespace")
	default:
		r.ok("bpf jit", "on")
	}
}

// bpffs: where programs and maps are pinned.
func (r *report) bpffs() {
	const path = kernel.Root
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		r.fail("bpffs", path+": "+err.Error(), "mount sysfs at /sys")
		return
	}
	if err := kernel.Lasting(path); err != nil {
		r.fail("bpffs", err.Error(), "see there; a daemon that may end with its namespace takes --private-pins")
		return
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		r.ok("bpffs", "not mounted at "+path+": the daemon mounts it; to keep it across unmounts of /sys put it in /etc/fstab")
		return
	}
	r.ok("bpffs", "mounted at "+path)
}

// cgroup: sockops programs are attached to the root of cgroup2, which must let
// itself be opened and asked for them.
func (r *report) cgroup() {
	const name = "cgroup2"
	dir, err := host.Cgroup()
	if err != nil {
		r.warn(name, err.Error()+": the agent mounts one for the moment; where it may not, it cannot see connections begin",
			"mount -t cgroup2 none /sys/fs/cgroup (systemd does it by default)")
		return
	}
	f, err := os.Open(dir)
	if err != nil {
		r.fail(name, err.Error(), "run as root")
		return
	}
	defer f.Close()
	if _, err := link.QueryPrograms(link.QueryOptions{Target: int(f.Fd()), Attach: ebpf.AttachCGroupSockOps}); err != nil {
		r.fail(name, fmt.Sprintf("%s cannot be asked for its sockops programs: %v: the agent cannot see connections begin", dir, err),
			"run as root, on a kernel with CONFIG_CGROUP_BPF")
		return
	}
	r.ok(name, "mounted at "+dir+", and takes programs")
}

// synchronised: whether somebody disciplines the machine's clock.
func (r *report) synchronised() {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		r.warn("clock", "state cannot be read: "+err.Error(), "")
		return
	}
	const timeError = 5 // TIME_ERROR: not synchronised
	if state == timeError || t.Status&unix.STA_UNSYNC != 0 {
		r.warn("clock", "this machine's clock is not synchronised: its rate may drift from the other machines' by more than 1 s, which is all that cookies and the times of chains allow",
			"run an NTP client (chrony, systemd-timesyncd)")
		return
	}
	r.ok("clock", fmt.Sprintf("synchronised, estimated error %d µs", t.Esterror))
}

// sysctl is the value of /proc/sys/path; "" where there is none.
func sysctl(path string) string {
	data, err := os.ReadFile("/proc/sys/" + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
