package lab

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

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespaces are named under /run/netns, so that `ip netns` lists them. They
// are entered by setns(CLONE_NEWNET) alone: `ip netns exec` would also mount
// /sys anew and hide the bpffs below it from whoever runs there.
const netnsDir = "/run/netns"

// createNamespace makes a named network namespace.
func createNamespace(name string) error {
	return onThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("create network namespace %s: %w", name, err)
		}
		return ns.Close()
	})
}

// deleteNamespace removes the name; the namespace itself goes with its last
// process or socket. A name that does not exist is no error.
func deleteNamespace(name string) error {
	path := filepath.Join(netnsDir, name)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// inNamespace runs f on a thread inside the namespace. f must not start
// goroutines that expect to be there too.
func inNamespace(name string, f func() error) error {
	return onThread(func() error {
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

// onThread runs f on a thread of its own that is thrown away afterwards:
// whatever namespace f leaves it in, nobody else runs there.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// startIn starts the command with its network in the namespace: a child
// inherits the namespace of the thread that forks it.
func startIn(namespace string, cmd *exec.Cmd) error {
	return inNamespace(namespace, cmd.Start)
}

// processesIn lists the processes whose network is in the namespace, also
// those that the user started there by `lab exec`.
func processesIn(namespace string) []int {
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
		if err != nil || unix.Stat(filepath.Join("/proc", e.Name(), "ns/net"), &is) != nil {
			continue
		}
		if is.Ino == want.Ino && is.Dev == want.Dev && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killIn kills the processes of a namespace and waits until they are gone.
func killIn(namespace string) error {
	gone := func() bool {
		pids := processesIn(namespace)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	}
	if !waitFor(killWait, gone) {
		return fmt.Errorf("processes %v in namespace %s survive SIGKILL", processesIn(namespace), namespace)
	}
	return nil
}

// namespacesOf lists the existing namespaces of a lab.
func namespacesOf(lab string) []string {
	entries, _ := os.ReadDir(netnsDir)
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), namespacePrefix(lab)) {
			names = append(names, e.Name())
		}
	}
	return names
}

// sysctl sets net.… of the namespace that the calling thread is in.
func sysctl(key, value string) error {
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s=%s: %w", key, value, err)
	}
	return nil
}
