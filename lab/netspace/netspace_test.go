package netspace

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBesideIP: a name that was made before `ip netns add` first ran on a machine can
// be removed afterwards. It runs itself where there are no names yet.
func TestBesideIP(t *testing.T) {
	const inside = "FAIRLEAD_TEST_NAMES"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestBesideIP$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := unix.Mount("names", "/run", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := Create("fl-names-one"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "add", "fl-names-two").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"fl-names-one", "fl-names-two"} {
		if err := Delete(name); err != nil {
			t.Error(err)
		}
	}
	if left := List("fl-names-"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
