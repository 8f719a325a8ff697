package netspace

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// execs says how often this program is to become itself again, from another
// thread than its first one. After that it waits for the end of its input.
const execs = "FAIRLEAD_TEST_EXECS"

func TestMain(m *testing.M) {
	left, err := strconv.Atoi(os.Getenv(execs))
	if err != nil {
		os.Exit(m.Run())
	}
	if left == 0 {
		os.Stdout.Close()
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	_ = os.Setenv(execs, strconv.Itoa(left-1))
	failed := make(chan error)
	for range 8 { // the first thread may run one of them
		go func() {
			runtime.LockOSThread()
			if syscall.Gettid() != os.Getpid() {
				failed <- syscall.Exec("/proc/self/exe", os.Args, os.Environ())
			}
		}()
	}
	fmt.Fprintln(os.Stderr, <-failed)
	os.Exit(1)
}

// A process that becomes another program is there all the time.
func TestProcessesThatExec(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	name := fmt.Sprint("fl-execs", os.Getpid())
	if err := Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), execs+"=40")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := Start(name, cmd); err != nil {
		t.Fatal(err)
	}
	settled := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, out)
		settled <- err
	}()
	for done := false; !done; {
		select {
		case err := <-settled:
			if err != nil {
				t.Error(err)
			}
			done = true
		default:
		}
		if there, zombie := slices.Contains(Processes(name), cmd.Process.Pid), IsZombie(cmd.Process.Pid); !there || zombie {
			t.Errorf("among the namespace's processes: %v, a zombie: %v", there, zombie)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
