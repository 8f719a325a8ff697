package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// scripted answers every check alike, until told otherwise.
type scripted struct{ err atomic.Pointer[error] }

// answer is what every check is told from now on.
func (p *scripted) answer(err error) { p.err.Store(&err) }

func (p *scripted) Probe(context.Context, Target) error {
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

// TestLocalError: a check that this machine could not make says nothing of the
// server, whatever was known before; how many there were is told.
func TestLocalError(t *testing.T) {
	for _, local := range []error{
		&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)},
		os.NewSyscallError("connect", syscall.EADDRNOTAVAIL),
		fmt.Errorf("mark the check's socket: %w", syscall.EPERM),
		Local{errors.New("no way to it")},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &scripted{}
			c := NewChecker(p, nil)
			defer c.Close()
			c.SetTargets([]Target{target(0, "a")})
			for _, before := range []struct {
				err  error
				want State
			}{{nil, Up}, {errors.New("connection refused"), Down}} {
				p.answer(before.err)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				known, _ := c.Report(1, 0)
				p.answer(local)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				r, _ := c.Report(1, 0)
				if r.State != before.want || r.Failed != known.Failed || r.Checks != known.Checks || r.Detail != known.Detail || r.Local != local.Error() {
					t.Errorf("%v: from %+v to %+v, want %v", local, known, r, before.want)
				}
				if n, targets, cause := c.Unasked(); n == 0 || targets != 1 || cause != local.Error() {
					t.Errorf("%v: told %d of %d: %s", local, n, targets, cause)
				}
			}
			p.answer(nil)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if _, targets, _ := c.Unasked(); targets != 0 || c.Down(1, 0) {
				t.Error("after a good answer it is still told, or the server is down")
			}
		})
	}
}

// TestNoDescriptor: the real thing. A descriptor for the check's socket is what
// an attacker may have used up.
func TestNoDescriptor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check := target(0, "a")
	check.Address = netip.MustParseAddrPort(l.Addr().String())
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 3, Max: before.Max} // more are open
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	err = Network{}.Probe(t.Context(), check)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err == nil || !isLocal(err) || !strings.Contains(err.Error(), "too many open files") {
		t.Errorf("without a descriptor: %v", err)
	}
	l.Close()
	if err := (Network{}).Probe(t.Context(), check); err == nil || isLocal(err) {
		t.Errorf("of a closed port: %v", err)
	}
}
