package mptcp

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
)

// TestTakeOver: one manager at a time, and the setting goes back to what it was
// even if one of them was killed.
func TestTakeOver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	name := fmt.Sprint("fl-ktake", os.Getpid())
	if err := netspace.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netspace.Delete(name); err != nil {
			t.Error(err)
		}
	})
	err := netspace.In(name, func() error {
		var namespace unix.Stat_t
		if err := unix.Stat("/proc/thread-self/ns/net", &namespace); err != nil {
			return err
		}
		defer os.Remove(RunFile(namespace.Ino))
		setTo := func(when, want string) {
			t.Helper()
			if s, err := readSetting(); err != nil || (s.now == s.programs) != (want == "programs") {
				t.Errorf("%s: %+v, %v, want %s", when, s, err, want)
			}
		}
		first, err := takeOver()
		if err != nil {
			return err
		}
		setTo("with one", "programs")
		if second, err := takeOver(); err == nil || !strings.Contains(err.Error(), "stop it first") {
			t.Errorf("a second one: %v, %v", second, err)
		}
		setTo("after a second was refused", "programs")

		// Killed: the lock is gone, nothing else is done.
		first.file.Close()
		next, err := takeOver()
		if err != nil {
			return err
		}
		if is, whose := next.holds(); !is {
			t.Errorf("after a kill: %s", whose)
		}
		if err := next.end(); err != nil {
			return err
		}
		setTo("after a kill, a start and an end", "kernel")

		// Killed, and what it left is damaged.
		if first, err = takeOver(); err != nil {
			return err
		}
		if _, err := first.file.WriteAt([]byte("x"), 0); err != nil {
			return err
		}
		first.file.Close()
		if next, err = takeOver(); err != nil {
			return err
		}
		if err := next.end(); err != nil {
			return err
		}
		setTo("after a kill that left damage", "kernel")

		// The administrator's own choice stays.
		s, err := readSetting()
		if err != nil {
			return err
		}
		if err := s.write(s.programs); err != nil {
			return err
		}
		if next, err = takeOver(); err != nil {
			return err
		}
		if err := next.end(); err != nil {
			return err
		}
		setTo("as the administrator had it", "programs")
		if next, err = takeOver(); err != nil {
			return err
		}
		if err := s.write(s.now); err != nil {
			return err
		}
		if is, _ := next.holds(); is {
			t.Error("a change by somebody else is not seen")
		}
		if err := next.end(); err != nil {
			return err
		}
		setTo("changed by somebody else", "kernel")

		if err := netspace.Sysctl("net.mptcp.enabled", "0"); err != nil {
			return err
		}
		if _, err := takeOver(); err == nil || !strings.Contains(err.Error(), "net.mptcp.enabled is 0") {
			t.Errorf("disabled: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
