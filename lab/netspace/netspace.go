// Package netspace is what labs are made of: named network namespaces of this
// machine, what runs in them, and their devices' settings.
package netspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespaces are named under /run/netns, so that `ip netns` lists them. They
// are entered by setns(CLONE_NEWNET) alone: `ip netns exec` would also mount
// /sys anew and hide the bpffs below it from whoever runs there.
const netnsDir = "/run/netns"

// killWait bounds the wait for killed processes to be gone.
const killWait = 10 * time.Second

// Create makes a named network namespace.
func Create(name string) error {
	if err := share(); err != nil {
		return fmt.Errorf("create network namespace %s: %w", name, err)
	}
	return OnThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("create network namespace %s: %w", name, err)
		}
		return ns.Close()
	})
}

// share makes the folder of names a mount of its own, as `ip netns add` does where it
// is none: done by somebody else later, it would hide our names below copies that
// keep them from being removed.
func share() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(netnsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// `ip` takes this lock, too.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", netnsDir, err)
	}
	err = unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	if err := unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s: %w", netnsDir, err)
	}
	return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "")
}

// Delete removes the name; the namespace itself goes with its last
// process or socket. A name that does not exist is no error.
func Delete(name string) error {
	path := filepath.Join(netnsDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// In runs f on a thread inside the namespace. f must not start
// goroutines that expect to be there too.
func In(name string, f func() error) error {
	return OnThread(func() error {
		ns, err := netns.GetFromName(name)
		if err != nil {
			return fmt.Errorf("open network namespace %s: %w", name, err)
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		return f()
	})
}

// OnThread runs f on a thread of its own that is thrown away afterwards:
// whatever namespace f leaves it in, nobody else runs there.
func OnThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Start starts the command with its network in the namespace: a child
// inherits the namespace of the thread that forks it.
func Start(namespace string, cmd *exec.Cmd) error {
	return In(namespace, cmd.Start)
}

// Processes lists the processes whose network is in the namespace, also
// those that the user started there by `lab exec`.
func Processes(namespace string) []int {
	var want, is unix.Stat_t
	if unix.Stat(filepath.Join(netnsDir, namespace), &want) != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || !network(filepath.Join("/proc", e.Name()), &is) {
			continue
		}
		if is.Ino == want.Ino && is.Dev == want.Dev && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Number is the namespace's inode, by which the kernel calls it; false: there is
// no such namespace.
func Number(namespace string) (inode uint64, ok bool) {
	var is unix.Stat_t
	err := unix.Stat(filepath.Join(netnsDir, namespace), &is)
	return is.Ino, err == nil
}

// Kill kills the processes of a namespace and waits until they are gone.
func Kill(namespace string) error {
	gone := func() bool {
		pids := Processes(namespace)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	}
	if !WaitFor(killWait, gone) {
		return fmt.Errorf("processes %v in namespace %s survive SIGKILL", Processes(namespace), namespace)
	}
	return nil
}

// List names the existing namespaces whose names begin with the prefix.
func List(prefix string) []string {
	entries, _ := os.ReadDir(netnsDir)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// Sysctl sets net.… of the namespace that the calling thread is in.
func Sysctl(key, value string) error {
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s=%s: %w", key, value, err)
	}
	return nil
}

// Router are the settings of one that forwards, and chooses among equal ways by a
// packet's addresses, protocol and ports.
var Router = [][2]string{
	{"net.ipv4.ip_forward", "1"},
	{"net.ipv6.conf.all.forwarding", "1"},
	// Policy 1 would follow the sender's socket hash behind veth; 3 with
	// these fields hashes what is in the packet.
	{"net.ipv4.fib_multipath_hash_policy", "3"},
	{"net.ipv4.fib_multipath_hash_fields", "55"}, // 0x37
	{"net.ipv6.fib_multipath_hash_policy", "3"},
	{"net.ipv6.fib_multipath_hash_fields", "55"},
}

// Multihomed: a link without a carrier is none.
var Multihomed = [][2]string{
	{"net.ipv4.conf.all.ignore_routes_with_linkdown", "1"},
	{"net.ipv4.conf.default.ignore_routes_with_linkdown", "1"},
	{"net.ipv6.conf.all.ignore_routes_with_linkdown", "1"},
	{"net.ipv6.conf.default.ignore_routes_with_linkdown", "1"},
}
