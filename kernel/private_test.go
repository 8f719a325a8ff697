package kernel

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain lets the test's program look from inside another namespace.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FAIRLEAD_TEST_LASTING"); dir != "" {
		if err := Lasting(dir); err != nil {
			os.Stdout.WriteString(err.Error())
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Pins that would go with a mount namespace are told from those that stay.
func TestLasting(t *testing.T) {
	if readLink("/proc", "self/ns/mnt") != readLink("/proc", "1/ns/mnt") || readLink("/proc", "self/ns/pid") != initialPID {
		// As where CI runs in a container: pid 1 is not the machine's.
		t.Log("this process is in a container: only what is told there is tested")
		if err := Ensure(Root); err != nil {
			t.Fatal(err)
		}
		if err := Lasting(Root); readLink("/proc", "self/ns/pid") != initialPID && err != nil {
			t.Errorf("a bpffs that is mounted in a container: %v", err)
		}
		return
	}
	if err := Ensure(Root); err != nil {
		t.Fatal(err)
	}
	shared := t.TempDir()
	if err := unix.Mount("bpf", shared, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(shared, unix.MNT_DETACH) })
	// What `ip netns exec` does: a mount namespace whose /sys is mounted anew.
	const netns = "mount --make-rslave / && umount -l /sys 2>/dev/null; mount -t sysfs sys /sys && "
	for _, c := range []struct{ what, dir, prepare, want string }{
		{"the machine's own", Root, "", ""},
		{"a folder that does not exist yet", filepath.Join(Root, "fairlead/none/yet"), "", ""},
		{"a namespace that has the machine's", Root, "true && ", ""},
		{"ip netns exec", Root, netns, "no bpffs is mounted at /sys/fs/bpf here"},
		{"ip netns exec, where one was mounted", filepath.Join(Root, "fairlead"), netns + "mount -t bpf bpf /sys/fs/bpf && ", "is this mount namespace's own"},
		{"ip netns exec, in a bpffs elsewhere", shared, netns, ""},
	} {
		args := []string{"-c", c.prepare + "exec " + os.Args[0]}
		cmd := exec.Command("sh", args...)
		if c.prepare != "" {
			cmd = exec.Command("unshare", append([]string{"--mount", "sh"}, args...)...)
		}
		cmd.Env = append(os.Environ(), "FAIRLEAD_TEST_LASTING="+c.dir)
		out, err := cmd.CombinedOutput()
		got := string(out)
		if err != nil || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, %v: want %q", c.what, got, err, c.want)
		}
	}
	// A container: a PID namespace of its own.
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", netns+"exec "+os.Args[0])
	cmd.Env = append(os.Environ(), "FAIRLEAD_TEST_LASTING="+Root)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "mounted in this container would be gone with it") {
		t.Errorf("a container: %q, %v", out, err)
	}
}

// What cannot be told is taken to last.
func TestLastingUntold(t *testing.T) {
	for _, c := range []struct {
		what   string
		told   map[string]string // of proc
		refuse bool
	}{
		{"nothing", nil, false},
		{"not the machine's mounts", map[string]string{"self/ns/pid": initialPID, "self/ns/mnt": "mnt:[1]"}, false},
		{"the machine's mounts", map[string]string{"self/ns/pid": initialPID, "self/ns/mnt": "mnt:[1]", "1/ns/mnt": "mnt:[1]"}, false},
		{"other mounts", map[string]string{"self/ns/pid": initialPID, "self/ns/mnt": "mnt:[1]", "1/ns/mnt": "mnt:[2]"}, true},
		{"a container", map[string]string{"self/ns/pid": "pid:[1]"}, true},
	} {
		proc := t.TempDir()
		for name, to := range c.told {
			at := filepath.Join(proc, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o700), os.Symlink(to, at)); err != nil {
				t.Fatal(err)
			}
		}
		// No bpffs is there.
		if err := lasting(t.TempDir(), proc); (err != nil) != c.refuse {
			t.Errorf("%s is told: %v, want refused: %v", c.what, err, c.refuse)
		}
	}
}
