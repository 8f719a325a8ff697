package clockstep

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// TestMain is the process whose clock is stepped, too: it says the time, twice a line.
func TestMain(m *testing.M) {
	if os.Getenv("SAYS_THE_TIME") != "" {
		in := bufio.NewScanner(os.Stdin)
		for began := time.Now(); in.Scan(); {
			fmt.Println(time.Now().Unix(), int64(time.Since(began).Seconds()))
		}
		return
	}
	os.Exit(m.Run())
}

// A process's wall clock is stepped, forwards and back, its monotonic one and everybody
// else's are not.
func TestStep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test writes into a process's memory: run it as root")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SAYS_THE_TIME=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var clock *Clock
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends
		var err error
		clock, err = Start(cmd)
		started <- err
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{0, time.Hour, -24 * time.Hour, 0} {
		if err := clock.Step(by); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		var unix, since int64
		if _, err := fmt.Fscan(out, &unix, &since); err != nil {
			t.Fatal(err)
		}
		is := time.Until(time.Unix(unix, 0)) - by
		if is < -5*time.Second || is > 5*time.Second || since < 0 || since > 60 {
			t.Errorf("stepped by %v its clock is off by %v, its monotonic one at %d s", by, is+by, since)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
