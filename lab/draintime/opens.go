package draintime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// opens opens connections and closes them, so many a second. What is measured shares its
// processors, so it is one thread, which wakes up every openEvery and makes system calls
// alone: with a goroutine a connection the clients took most of a processor of two.
type opens struct {
	rate int
	to   unix.SockaddrInet4
	// opened and failed are told of each; failed of what was refused, reset or not
	// answered within openTime.
	opened, failed func()

	open []opening // oldest first
}

type opening struct {
	socket int
	since  time.Time
}

const (
	openEvery = 2 * time.Millisecond
	openTime  = time.Second
	// openMost is how many may be owed at once, where this process did not run for a
	// while: more of a burst says nothing about when the last one came.
	openMost = 32
)

// run goes on until ctx ends. It belongs to the clients' network namespace.
func (o *opens) run(ctx context.Context) error {
	defer func() {
		for _, c := range o.open {
			unix.Close(c.socket)
		}
	}()
	tick := time.NewTicker(openEvery)
	defer tick.Stop()
	owed, last := 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		if err := o.settle(now); err != nil {
			return err
		}
		owed, last = min(owed+now.Sub(last).Seconds()*float64(o.rate), openMost), now
		for ; owed >= 1; owed-- {
			if err := o.begin(now); err != nil {
				return err
			}
		}
	}
}

// begin opens one.
func (o *opens) begin(now time.Time) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a connection: %w", err)
	}
	// It leaves nothing behind (RST), so that no port is used up.
	if err := unix.SetsockoptLinger(s, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		unix.Close(s)
		return fmt.Errorf("open a connection: %w", err)
	}
	o.opened()
	if err := unix.Connect(s, &o.to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		unix.Close(s)
		o.failed()
		return nil
	}
	o.open = append(o.open, opening{s, now})
	return nil
}

// settle closes those that are open, and those that are not going to be.
func (o *opens) settle(now time.Time) error {
	left := o.open[:0]
	for _, c := range o.open {
		if _, err := unix.Getpeername(c.socket); err != nil {
			refused, asked := unix.GetsockoptInt(c.socket, unix.SOL_SOCKET, unix.SO_ERROR)
			if asked != nil {
				return fmt.Errorf("look at a connection: %w", asked)
			}
			if refused == 0 && now.Sub(c.since) < openTime {
				left = append(left, c)
				continue
			}
			o.failed()
		}
		unix.Close(c.socket)
	}
	o.open = left
	return nil
}
