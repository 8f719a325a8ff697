package nexthop

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
)

// Run keeps the ways right until ctx ends. looked is called after every
// look-up; changed: some way is another than before, or it is the first. It fails
// only if it cannot subscribe when it begins; a subscription that breaks later is
// made anew.
func (w *Watcher) Run(ctx context.Context, looked func(changed bool)) error {
	n, err := w.subscribe()
	if err != nil {
		return err
	}
	defer func() { n.close() }()
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	settled := time.NewTimer(0)
	defer settled.Stop()
	first, anew, rested := true, true, time.Time{}
	look := func(what func() bool) {
		begun := time.Now()
		looked(what() || first)
		first, rested = false, time.Now().Add(idleTimes*time.Since(begun))
	}
	soon := func() { settled.Reset(max(settle, time.Until(rested))) }
	for {
		ok := true
		select {
		case <-ctx.Done():
			return nil
		case u, open := <-n.neighbours:
			if ok = open; ok && w.concerns(u.Neigh) {
				soon()
			}
		case _, ok = <-n.routes:
			anew = true
			soon()
		case _, ok = <-n.links:
			anew = true
			soon()
		case <-settled.C:
			if anew {
				look(w.refresh)
			} else {
				look(w.again)
			}
			anew = false
		case <-tick.C:
			ok = n.done != nil
			look(w.turn)
		}
		if ok {
			continue
		}
		n.close()
		if n, err = w.subscribe(); err != nil {
			w.log.Warn("changes of routes and neighbours are seen late", "interval", refreshEvery, "error", err)
		}
		anew = true
		soon()
	}
}

// notices are the kernel's notifications; a zero notices never has any.
type notices struct {
	neighbours chan netlink.NeighUpdate
	routes     chan netlink.RouteUpdate
	links      chan netlink.LinkUpdate
	done       chan struct{}
}

// close ends the subscription. What is under way to the channels is read, or
// its sender would wait for ever.
func (n notices) close() {
	if n.done == nil {
		return
	}
	close(n.done)
	go drain(n.neighbours)
	go drain(n.routes)
	go drain(n.links)
}

func drain[T any](c chan T) {
	if c == nil {
		return
	}
	for range c {
	}
}

func (w *Watcher) subscribe() (n notices, err error) {
	n.done = make(chan struct{})
	defer func() {
		if err != nil {
			n.close()
			n = notices{}
		}
	}()
	// A channel is closed after most errors, such as ENOBUFS when changes come
	// faster than they are read.
	lost := func(err error) {
		select {
		case <-n.done: // our doing
		default:
			w.log.Warn("notifications of routes and neighbours were lost: looking everything up", "error", err)
		}
	}
	neighbours := make(chan netlink.NeighUpdate, 1024)
	if err := netlink.NeighSubscribeWithOptions(neighbours, n.done, netlink.NeighSubscribeOptions{Namespace: &w.ns, ErrorCallback: lost}); err != nil {
		return n, fmt.Errorf("watch the neighbour table: %w", err)
	}
	n.neighbours = neighbours
	routes := make(chan netlink.RouteUpdate, 1024)
	if err := netlink.RouteSubscribeWithOptions(routes, n.done, netlink.RouteSubscribeOptions{Namespace: &w.ns, ErrorCallback: lost}); err != nil {
		return n, fmt.Errorf("watch routes: %w", err)
	}
	n.routes = routes
	links := make(chan netlink.LinkUpdate, 64)
	if err := netlink.LinkSubscribeWithOptions(links, n.done, netlink.LinkSubscribeOptions{Namespace: &w.ns, ErrorCallback: lost}); err != nil {
		return n, fmt.Errorf("watch interfaces: %w", err)
	}
	n.links = links
	return n, nil
}

// concerns says whether a neighbour is on some server's way.
func (w *Watcher) concerns(n netlink.Neigh) bool {
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.vias[a.Unmap()]
}
