package member

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/daemon"
)

// The store has how far the shared clock is ahead of wall clocks, since the first
// daemon fixed it. It comes last: what connections are stamped by is the clock that is
// pinned here, or that peers have, whose answer is as good as the way to them. By the
// store's a machine is as right as its wall clock is, and as that of who fixed it was;
// but a deployment that begins to stand up again one by one has what it had.

// clockOff is how far this machine's clocks may be from what the store says without a
// word: what cookies allow.
const clockOff = time.Second

// agreedClock is the shared clock of a daemon that has none pinned, and no peers that
// answer.
func (m *Member) agreedClock(ctx context.Context) sharedClock {
	for deadline := time.Now().Add(clockStartTime); ; {
		c, err := m.stored.clock(ctx, m.Name, 0)
		switch {
		case err != nil:
			m.Log.Warn("the store does not say how far the shared clock is ahead of wall clocks; this machine's wall clock is taken for it", "error", err)
			return sharedClock{wallMS() - monotonicMS(), clockWall}
		case c.mine:
			return sharedClock{wallMS() - monotonicMS(), clockWall}
		case c.fresh && time.Now().Before(deadline):
			// Who fixed it is starting as well, and knows better than this machine's
			// wall clock what he fixed.
			if offsets, _ := peerOffsets(ctx, m.Name, m.peers.withClock()); len(offsets) > 0 {
				median, _ := medianOffset(offsets)
				return sharedClock{median, clockPeers}
			}
			if daemon.Sleep(ctx, 20*time.Millisecond) {
				continue
			}
		}
		return sharedClock{wallMS() + c.ahead - monotonicMS(), clockStore}
	}
}

// agreed is the store's clock, as one daemon found it.
type agreed struct {
	ahead uint32
	mine  bool // fixed by this call
	fresh bool // fixed since this daemon began to ask
}

// clock is what the store has; if it has nothing, ahead is fixed.
func (s *stored) clock(ctx context.Context, me string, ahead uint32) (a agreed, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	c, err := s.ledger.Clock(ctx)
	if err == nil && c == nil {
		c, a.mine, err = s.ledger.FixClock(ctx, ahead, me)
		s.raced = err == nil && !a.mine
	}
	if err != nil {
		return a, err
	}
	a.ahead, a.fresh = c.AheadMS, s.raced && c.By != me
	return a, nil
}

// keepClock has the store know the clock that this daemon goes by, if it knows none: a
// deployment that was there before its store brings it along.
func (m *Member) keepClock(ctx context.Context) error {
	for m.opened.Clock != nil {
		ahead := m.clock.Load().now() - wallMS()
		c, err := m.stored.clock(ctx, m.Name, ahead)
		if off := time.Duration(int32(ahead-c.ahead)) * time.Millisecond; err == nil && off.Abs() > clockOff {
			m.Log.Warn("this machine's wall clock, or the shared one, is not where the store has it: a machine that starts while no other answers would not understand its cookies; see to NTP", "off", off)
		}
		if err == nil || !daemon.Sleep(ctx, storeRest) {
			return nil
		}
	}
	return nil
}
