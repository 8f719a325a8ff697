package probe

import (
	"context"
	"time"
)

// Walks follow the last packet of a train: at the routers before the slow link
// they are answered at once, behind it only when the train is through.

// tailTries bounds the trains for that: routers answer few walks.
const tailTries = 3

// tail finds which link of a slow lane is the slow one.
func (p *Prober) tail(ctx context.Context, lane int, number *uint32) error {
	l := p.lanes[lane]
	p.reserve(l, true)
	defer p.reserve(l, false)
	for range tailTries {
		if err := p.idle(ctx, l); err != nil {
			return err
		}
		*number++
		began := time.Now()
		_, through, err := p.train(ctx, lane, *number, l.walks)
		if err != nil {
			return err
		}
		if p.readTail(l, began, through) {
			break
		}
	}
	return nil
}

// reserve keeps a lane's walks from being asked otherwise.
func (p *Prober) reserve(l *lane, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range l.walks {
		w.reserved = on
	}
}

// idle waits until none of a lane's walks is on its way.
func (p *Prober) idle(ctx context.Context, l *lane) error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		p.mu.Lock()
		p.conclude(time.Now())
		busy := false
		for _, w := range l.walks {
			busy = busy || !w.asked.IsZero()
		}
		p.mu.Unlock()
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
}

// readTail takes in what the walks behind a train said, and tells whether that
// names the link.
func (p *Prober) readTail(l *lane, began time.Time, through time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	sure := true
	for _, w := range l.walks {
		switch {
		case !w.right.After(began):
			sure = false
		case w.rtt < through/3:
			w.tail = wellSign
		default:
			w.tail = badSign
			return sure
		}
	}
	return sure
}
