package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
)

// IdleConnections is how many connections attack idle-api keeps open to each
// daemon.
const IdleConnections = 4096

const (
	// idleRest is between two looks at them, idleAtOnce how many are opened at each: what
	// a daemon ends is opened anew, and without a bound the attackers alone use up the
	// processors that the daemons have to answer with.
	idleRest   = 300 * time.Millisecond
	idleAtOnce = 1024
	// idlePatience is how long a look waits for an answer: five attackers, and what else a
	// machine does, may take most of its processors.
	idlePatience = 15 * time.Second
)

// idle opens connections that say nothing, and opens those anew that the other
// side ends, until ctx ends.
func (p FloodPlan) idle(ctx context.Context, out *json.Encoder) error {
	const most = IdleConnections + 256
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		return fmt.Errorf("allow %d connections: %w", most, err)
	}
	began, r := time.Now(), FloodReport{}
	sockets := make([]int, IdleConnections)
	for i := range sockets {
		sockets[i] = -1
	}
	for {
		opened := 0
		for i := range sockets {
			if opened == idleAtOnce {
				break
			}
			if sockets[i] >= 0 && !endedBy(sockets[i]) {
				continue
			}
			var err error
			if sockets[i], err = openIdle(p.Idle); err != nil {
				return fmt.Errorf("open connection to %v: %w", p.Idle, err)
			}
			opened++
		}
		r.Attacks += opened
		if sleep(ctx, idleRest) != nil {
			r.Seconds, r.Done = time.Since(began).Seconds(), true
			return out.Encode(r)
		}
	}
}

// openIdle starts a connection and does not wait for it.
func openIdle(to netip.AddrPort) (int, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Connect(s, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		unix.Close(s)
		return -1, err
	}
	return s, nil
}

// endedBy closes a socket whose other side has ended it, or refused.
func endedBy(s int) bool {
	var b [1]byte
	n, _, err := unix.Recvfrom(s, b[:], unix.MSG_DONTWAIT|unix.MSG_PEEK)
	if n > 0 || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOTCONN) {
		return false
	}
	unix.Close(s)
	return true
}

// idleAPI keeps the daemons' APIs busy with connections that say nothing, from
// inside the servers' network, and looks whether daemons still answer and
// still reach their servers.
func (r *runner) idleAPI(ctx context.Context, s attackStep, a *Attack) error {
	l := r.lab
	daemons := append(l.fronts()[:l.ActiveLBs], l.servers()...)
	var attackers []*floodClient
	for _, m := range daemons { // each is a process with descriptors of its own
		f, err := l.startAttacker(ctx, "router", FloodPlan{Seconds: s.slots*r.o.Scale.Slot.Seconds() + 2*changeWait.Seconds(), Idle: l.exposedAt(m)})
		if err != nil {
			return err
		}
		defer f.stop()
		attackers = append(attackers, f)
	}
	found := make([]string, len(daemons))
	end := time.Now().Add(seconds(s.slots * r.o.Scale.Slot.Seconds()))
	var work sync.WaitGroup
	for i, m := range daemons {
		work.Go(func() {
			for found[i] == "" && time.Now().Before(end) && sleep(ctx, 200*time.Millisecond) == nil {
				found[i] = l.troubleOf(ctx, m)
			}
		})
	}
	work.Wait()
	a.Found = slices.DeleteFunc(found, func(f string) bool { return f == "" })
	for _, f := range attackers {
		report, err := f.end()
		if err != nil {
			return err
		}
		a.Packets += report.Attacks
	}
	if len(a.Found) == 0 {
		return nil
	}
	// What waits to be accepted is over when the daemons answer again.
	for _, m := range daemons {
		if !netspace.WaitFor(readyWait, func() bool { return l.troubleOf(ctx, m) == "" }) {
			return fmt.Errorf("%v after the connections were closed: %s", readyWait, l.troubleOf(ctx, m))
		}
	}
	return nil
}

// troubleOf is what is wrong with a daemon: it does not answer, or takes
// servers for down. Empty: nothing.
func (l *Lab) troubleOf(ctx context.Context, machine string) string {
	status, err := l.statusWithin(ctx, machine, idlePatience)
	if err != nil {
		if ctx.Err() != nil {
			return ""
		}
		return fmt.Sprintf("%s does not answer: %v", machine, err)
	}
	if !l.isFront(machine) {
		return ""
	}
	if missing := without(status); missing != "" {
		return fmt.Sprintf("%s gives no new connections to %s", machine, missing)
	}
	return ""
}
