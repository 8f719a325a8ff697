package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Cgroup is where cgroup v2 is mounted and can be opened; a mount that another
// file system hides is none. Where there is none, the error says why.
func Cgroup() (dir string, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	err = errors.New("no cgroup v2 is mounted")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		if err = opens(f[1]); err == nil {
			return f[1], nil
		}
	}
	return "", err
}

// opens says whether a folder is cgroup v2's.
func opens(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("cgroup v2 is mounted at %s, and another file system over it", dir)
	}
	return nil
}

// cgroupRoot is a folder that stands for the root of cgroup v2: the one that
// is mounted, or one mounted for the moment. done releases it.
func cgroupRoot() (dir string, done func(), err error) {
	dir, none := Cgroup()
	if none == nil {
		return dir, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "fairlead-cgroup-"); err != nil {
		return "", nil, err
	}
	if err := unix.Mount("none", dir, "cgroup2", 0, ""); err != nil {
		os.Remove(dir)
		return "", nil, fmt.Errorf("%w, and mounting one failed: %w; run: mount -t cgroup2 none /sys/fs/cgroup", none, err)
	}
	return dir, func() {
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		os.Remove(dir)
	}, nil
}
