package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot is a folder that stands for the root of cgroup v2: the one that
// is mounted, or one mounted for the moment. done releases it.
func cgroupRoot() (dir string, done func(), err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], func() {}, nil
		}
	}
	if dir, err = os.MkdirTemp("", "fairlead-cgroup-"); err != nil {
		return "", nil, err
	}
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		os.Remove(dir)
		return "", nil, fmt.Errorf("no cgroup v2 is mounted, and mounting one failed: %w; run: mount -t cgroup2 none /sys/fs/cgroup", err)
	}
	return dir, func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		os.Remove(dir)
	}, nil
}
