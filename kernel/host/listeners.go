package host

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead/fairlead/tables"
)

// Balancers and switches are told at once when nobody listens for a VIP any more, and
// not by the third check that fails. A look asks the kernel which socket would take
// the VIP's next first packet: one look-up in its hash a VIP, as a packet makes it,
// whatever address, family or group the socket has. That takes a few microseconds and
// is made many times a second.
//
// The kernel's own notifications (SKNLGRP_INET_TCP_DESTROY) would come some
// milliseconds sooner. But it makes one for every connection that ends, by a worker
// that the socket's memory waits for, and loses them where many end at once: a busy
// server would pay for what happens once a month, and still have to look.
//
// That nobody listens is news only where somebody did: packets for a VIP may end in
// another network namespace, by a rule that no look-up sees.

const (
	// listenShare: who listens is looked at every lookEvery, where that takes no more
	// than one part in so many of the time.
	listenShare = 300
)

// listeners is who listens for this server's VIPs, and what was told of it. Each
// piece of news has a number; who has heard up to one asks for what comes after.
type listeners struct {
	log *slog.Logger
	ask *asker
	// ended hears of each end before anybody else does.
	ended func(vip uint32, why string)

	mu   sync.Mutex
	vips map[uint32]*listened
	// due is when is looked next, and cost what a look took of late at the least: more
	// is others' time, where the machine is busy.
	due   time.Time
	cost  time.Duration
	first uint64 // the number before the first piece of news
	last  uint64
	news  chan struct{} // closed with the next piece
}

// listened is one VIP's.
type listened struct {
	tables.HostService
	there bool   // somebody listened at the last look
	ended uint64 // the number of the last end; 0: there was none
}

// Ended is that nobody listens for a VIP any more.
type Ended struct {
	VIP uint32
	Why string
}

// newListeners belongs to the calling thread's network namespace.
func newListeners(log *slog.Logger, ended func(vip uint32, why string)) (*listeners, error) {
	// Another socket than for counts, which take their time.
	ask, err := openAsker()
	if err != nil {
		return nil, err
	}
	// Another agent's life has other numbers.
	first := rand.Uint64()>>1 + 1
	return &listeners{log: log, ask: ask, ended: ended, cost: math.MaxInt32, vips: map[uint32]*listened{}, first: first, last: first, news: make(chan struct{})}, nil
}

// follow makes services those that are looked at.
func (l *listeners) follow(services []tables.HostService) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.vips
	l.vips = map[uint32]*listened{}
	for _, s := range services {
		if l.vips[s.ID] = before[s.ID]; l.vips[s.ID] == nil || l.vips[s.ID].HostService != s {
			l.vips[s.ID] = &listened{HostService: s}
		}
	}
}

// lookInTime looks if that is due. It belongs to one goroutine.
func (l *listeners) lookInTime() {
	began := time.Now()
	if began.Before(l.due) {
		return
	}
	l.look()
	l.cost = min(time.Since(began), l.cost+l.cost/8+time.Microsecond)
	l.due = began.Add(listenShare * l.cost)
}

// look looks once.
func (l *listeners) look() {
	l.mu.Lock()
	all := make([]*listened, 0, len(l.vips))
	for _, v := range l.vips {
		all = append(all, v)
	}
	l.mu.Unlock()
	for _, v := range all {
		there, err := l.ask.takes(v.Proto, v.At)
		if err != nil {
			continue // it says nothing of the server
		}
		if v.there && !there { // nobody else writes it
			l.tell(v)
		}
		v.there = there
	}
}

// tell tells that nobody listens for v any more.
func (l *listeners) tell(v *listened) {
	l.log.Warn("nobody listens for a VIP any more", "vip", v.Name, "port", v.At.Port())
	l.ended(v.ID, v.why())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count()
	v.ended = l.last
}

func (v *listened) why() string {
	return fmt.Sprintf("nobody listens on port %d any more", v.At.Port())
}

// changed tells that there is something else to ask for.
func (l *listeners) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count()
}

// count makes the next number; l.mu is held.
func (l *listeners) count() {
	l.last++
	close(l.news)
	l.news = make(chan struct{})
}

// await is what was told after the number seen, as soon as there is something or ctx
// ends, and the number of the last piece. Of another life's number, and 0, nothing is
// known, so that it returns at once.
func (l *listeners) await(ctx context.Context, seen uint64) (last uint64, ended []Ended) {
	for {
		l.mu.Lock()
		last = l.last
		known := seen >= l.first && seen <= last
		for _, v := range l.vips {
			if known && v.ended > seen {
				ended = append(ended, Ended{v.ID, v.why()})
			}
		}
		news := l.news
		l.mu.Unlock()
		if !known || seen < last || ctx.Err() != nil {
			return last, ended
		}
		select {
		case <-ctx.Done():
		case <-news:
		}
	}
}

func (l *listeners) close() {
	if l != nil {
		l.ask.close()
	}
}

// AwaitServing returns as soon as somebody who listened for a VIP is gone, or this
// server's state in a VIP of scheme beamer or faild changes, after what seen stands
// for, and when ctx ends: see AwaitServing of the API.
func (a *Agent) AwaitServing(ctx context.Context, seen uint64) (last uint64, ended []Ended) {
	return a.listeners.await(ctx, seen)
}
