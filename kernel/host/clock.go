package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
)

// ClockBase is D of this boot: shared ms = CLOCK_MONOTONIC ms + D. ok is
// false until SetClock fixed it, in this process or in one before.
func (a *Agent) ClockBase() (d uint32, ok bool) {
	return a.control.load(offClock), a.control.load(offClocked) != 0
}

// SharedNow is the shared clock in ms; meaningless until ClockBase is ok.
func (a *Agent) SharedNow() uint32 {
	d, _ := a.ClockBase()
	return uint32(kernel.MonotonicMS()) + d
}

// SetClock fixes the shared clock by what sharedNow reads, and pins it. Once
// fixed it stays, for as long as the pins live: then SetClock does nothing,
// and asks nothing. The clock set can be up to 32 ms off sharedNow (rounded to
// the nearest, else every agent that joins would draw the clock back): D is a
// multiple of 64, since the low six bits of a SYN cookie's timestamp mean
// something (bpf/host/carrier_tcp_timestamp.h).
func (a *Agent) SetClock(sharedNow func() uint32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.ClockBase(); ok {
		return nil
	}
	now := sharedNow()
	a.control.store(offClock, (now-uint32(kernel.MonotonicMS())+32)&^63)
	a.control.store(offClocked, 1)
	return a.refreshClock()
}

// RestoreClock puts back a base that was fixed in this boot, where what is pinned
// of it is damaged: the constants of live connections are of that one.
func (a *Agent) RestoreClock(d uint32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.control.store(offClock, d)
	a.control.store(offClocked, 1)
	return a.refreshClock()
}

// refreshClock recomputes jiffies_base (kernel.Jiffies).
func (a *Agent) refreshClock() error {
	d, ok := a.ClockBase()
	if !ok {
		return nil
	}
	var c bpf.HostClock
	if _, err := a.set.HostClock.Run(&ebpf.RunOptions{Context: c, ContextOut: &c}); err != nil {
		return fmt.Errorf("run program host_clock: %w", err)
	}
	if base := a.jiffies.Base(a.control.load(offJiffies), d, c.MonotonicNs, c.Jiffies); base != a.control.load(offJiffies) {
		a.control.store(offJiffies, base)
	}
	return nil
}

const warnNoTimestamps = "net.ipv4.tcp_timestamps is 0: new connections carry no cookie and break when balancers or servers change; " +
	"run: sysctl -w net.ipv4.tcp_timestamps=2 (or 1), also for the next boot"

// watchTimestamps asks sockets for their offset unless tcp_timestamps is 2.
// The programs themselves notice the first connection that has one; this is
// for what they cannot see, and for the log. It is never taken back: sockets
// with an offset may live on.
func (a *Agent) watchTimestamps() error {
	var b [8]byte
	n, err := a.sysctl.ReadAt(b[:], 0)
	if n == 0 {
		return fmt.Errorf("net.ipv4.tcp_timestamps: %w", err)
	}
	if off := b[0] == '0'; off != a.noTimestamps {
		a.noTimestamps = off
		if off {
			a.log.Error(warnNoTimestamps)
		} else {
			a.log.Info("net.ipv4.tcp_timestamps is on again: new connections carry a cookie")
		}
	}
	if b[0] != '2' && a.control.load(offLookup) == 0 {
		a.control.store(offLookup, 1)
	}
	return nil
}

// Run does the agent's background work until ctx ends: it keeps the clock, the
// sysctl, the ways to other servers and this server's own state watched, and
// answers what the programs ask for.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.hops.Run(ctx, func(bool) { a.refreshPeers() }) })
	g.Go(func() error { return a.serveAsks(ctx) })
	lost := make(chan struct{}, 1)
	g.Go(func() error { a.watch(ctx, lost); return nil })
	g.Go(func() error { a.look(ctx, lost); return nil })
	return g.Wait()
}

// watch keeps what it is told of, and what time changes; lost is that a program was
// detached.
func (a *Agent) watch(ctx context.Context, lost <-chan struct{}) {
	const tickEvery = time.Second
	looks := time.Duration(0) // by one timer: at rest it is waking up that costs
	tend := time.NewTicker(kernel.TendEvery)
	defer tend.Stop()
	report := func(err error) {
		if err != nil {
			a.log.Error("host agent", "error", err)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.state.changed:
		case <-tend.C:
			looks++
			a.tend(looks%(kernel.PinsEvery/kernel.TendEvery) == 0)
			if looks%(tickEvery/kernel.TendEvery) != 0 {
				continue
			}
			a.mu.Lock()
			report(errors.Join(a.refreshClock(), a.watchTimestamps(), a.keep()))
			a.mu.Unlock()
		case <-lost:
			a.tend(true)
			continue
		}
		report(a.resettle())
	}
}
