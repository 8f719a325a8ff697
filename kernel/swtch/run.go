package swtch

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/wire"
)

const (
	// reconcileEvery is how often all is read back, whatever was heard.
	reconcileEvery = time.Second
	// eventsSettle is how long after the kernel tells of a change it is looked
	// at: what changes seldom comes alone. Each time that it goes on changing
	// it is twice that, up to eventsPause.
	eventsSettle = 10 * time.Millisecond
	eventsPause  = 320 * time.Millisecond
)

// Run reconciles, every second and when the kernel tells of a change, until
// ctx ends, which is no error. What is in the kernel stays there.
func (s *Switch) Run(ctx context.Context) error {
	changed, err := s.kernel.watch(ctx, s.concerns)
	if err != nil {
		return err
	}
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	wait, last := eventsSettle, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-changed:
			if time.Since(last) < 2*eventsPause {
				wait = min(2*wait, eventsPause)
			} else {
				wait = eventsSettle
			}
			settle := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				settle.Stop()
				return nil
			case <-settle.C:
			}
			last = time.Now()
		}
		s.Reconcile()
	}
}

// Reconcile reads all that is ours back once, puts right what somebody else
// changed, and does what time asks for. An error stands in Status, too, until
// it is over.
func (s *Switch) Reconcile() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desired == nil {
		return nil
	}
	before := s.snapshot()
	_, err := s.look()
	if err == nil {
		if !s.adopting.IsZero() || !s.due.IsZero() && !s.o.Now().Before(s.due) {
			s.settle()
		}
		err = s.change()
	}
	text := ""
	if err != nil {
		s.restore(before)
		text = err.Error()
	}
	if text != s.counts.err {
		if text != "" {
			s.log.Error("the kernel is not as it should be", "err", err)
		} else {
			s.log.Info("the kernel is as it should be again")
		}
		s.counts.err = text
	}
	return err
}

// concerns: the kernel tells of something that is ours, or that ours stands
// on.
func (s *Switch) concerns(m netlink.Message) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return len(m.Data) >= unix.SizeofIfInfomsg
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		k, _, err := parseNexthop(m)
		return err == nil && mine(k.id)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		n, err := parseNeighbour(m)
		if err != nil {
			return false
		}
		if n.family == unix.AF_BRIDGE {
			_, ok, _ := wire.DecodeFaild(n.mac)
			return ok
		}
		_, ok := bucketOf(n.address)
		return ok
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		r, err := parseRoute(m)
		return err == nil && !r.cloned && s.routesTo(r.destination)
	}
	return false
}

func (s *Switch) routesTo(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desired != nil && slices.Contains(s.desired.VIPs, a)
}

// watch tells of changes that concern, one token for any number of them, and
// not of those that this kernel itself was told to make, where it says so.
func (k *rtnetlink) watch(ctx context.Context, concerns func(netlink.Message) bool) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	heard := func(m netlink.Message) {
		if (m.Header.PID == 0 || m.Header.PID != k.port.Load()) && concerns(m) {
			tell()
		}
	}
	groups := []uint32{unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_NEXTHOP}
	return changed, k.Watch(ctx, groups, heard, func(error) { tell() })
}

// forwards: the kernel forwards packets of that family.
func forwards(k kernel, six bool) bool {
	path := forward4
	if six {
		path = forward6
	}
	is, err := k.sysctl(path)
	return err == nil && is == "1"
}
