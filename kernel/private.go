package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// What is pinned lives as long as the mount of its bpffs. A process with a mount
// namespace of its own (`ip netns exec`, a container) may see one that nobody else
// has, and that is gone with the namespace's last process: then packets stop, or go
// past the programs, when the daemon ends, which is what pins are to prevent.

// initialPID is the inode of the machine's first PID namespace, the same on every
// kernel (PROC_PID_INIT_INO).
const initialPID = "pid:[4026531836]"

// Lasting is an error where what is pinned in dir would not outlive this process's
// mount namespace. What cannot be told is taken to last: in a container, a bpffs
// that is mounted when the daemon comes.
func Lasting(dir string) error { return lasting(dir, "/proc") }

// lasting looks at processes under proc.
func lasting(dir, proc string) error {
	contained := differ(readLink(proc, "self/ns/pid"), initialPID)
	if !On(dir) { // Ensure would mount one at Root
		switch {
		case contained:
			return fmt.Errorf("no bpffs is mounted at %s, and one that is mounted in this container would be gone with it, and all programs with that: give the container the machine's (docker run -v %[1]s:%[1]s)", Root)
		case differ(readLink(proc, "self/ns/mnt"), readLink(proc, "1/ns/mnt")):
			return fmt.Errorf("no bpffs is mounted at %s here, and one that is mounted in this mount namespace would be gone with it, and all programs with that: %s", Root, remedy)
		}
		return nil
	}
	if contained {
		return nil
	}
	device, err := deviceOf(dir)
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "1/mountinfo"))
	if err != nil {
		return nil // not ours to look at
	}
	for line := range strings.Lines(string(mounts)) {
		// id, parent, device, …
		if f := strings.Fields(line); len(f) > 2 && f[2] == device {
			return nil
		}
	}
	return fmt.Errorf("the bpffs at %s is this mount namespace's own, and would be gone with it, and all programs with that: %s", dir, remedy)
}

const remedy = "`ip netns exec` makes such a namespace; enter the network namespace alone (nsenter --net=/run/netns/NAME), and have a bpffs mounted for the machine (mount -t bpf bpf " + Root + ")"

// differ says that two namespaces are not the same; not where one cannot be told.
func differ(a, b string) bool { return a != "" && b != "" && a != b }

// readLink is where a link leads; empty: it cannot be told.
func readLink(parts ...string) string {
	to, err := os.Readlink(filepath.Join(parts...))
	if err != nil {
		return ""
	}
	return to
}

// deviceOf is the file system of dir, or of its nearest ancestor that exists, as
// mountinfo calls it.
func deviceOf(dir string) (string, error) {
	for {
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		if err == nil {
			return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("pin folder %s: %w", dir, err)
		}
		dir = filepath.Dir(dir)
	}
}
