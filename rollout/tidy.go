package rollout

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// Election is the prefix of keys by which controllers choose the one that leads.
const Election = "leader/"

// Lead tidies while candidate leads, and is a candidate until ctx ends. Several may:
// what two of them would do at once the store refuses to one.
func (c *Coordinator) Lead(ctx context.Context, s store.Store, candidate string, quiet time.Duration, log *slog.Logger) error {
	for ctx.Err() == nil {
		err := c.lead(ctx, s, candidate, quiet, log)
		if err != nil && ctx.Err() == nil {
			log.Warn("this controller does not lead; it tries again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return nil
}

func (c *Coordinator) lead(ctx context.Context, s store.Store, candidate string, quiet time.Duration, log *slog.Logger) error {
	return store.Hold(ctx, s, leaderTime, storeTimeout, func(ctx context.Context, lease store.Lease) error {
		if _, err := s.Campaign(ctx, Election, candidate, lease); err != nil {
			return err
		}
		log.Info("this controller leads")
		c.tidy(ctx, quiet, log)
		return nil
	})
}

// leaderTime is how long a leader that is gone is waited for.
const leaderTime = 5 * time.Second

// tidy finishes what nobody else does: a version whose operator is gone before all
// had their turn, slots whose rest is over, migrations whose connections are, and keys that are old. It waits until the head has stood
// still for quiet, which is longer than any step of a change takes.
func (c *Coordinator) tidy(ctx context.Context, quiet time.Duration, log *slog.Logger) {
	heads := make(chan ledger.Head)
	go func() {
		for ctx.Err() == nil {
			for head, err := range c.Ledger.Heads(ctx) {
				if err != nil {
					break
				}
				select {
				case heads <- head:
				case <-ctx.Done():
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	var head ledger.Head
	var p pace
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case head = <-heads:
			continue // and wait anew
		case <-time.After(quiet):
		}
		done, err := c.tidyOnce(ctx, head, &p)
		if ctx.Err() == nil {
			c.warn(&p, err)
		}
		switch {
		case err != nil && ctx.Err() == nil && told != err.Error() && !errors.Is(err, controller.ErrConflict):
			told = err.Error()
			log.Warn("what is left to do cannot be done yet; trying on", "error", err)
		case err == nil:
			told = ""
		}
		for _, line := range done {
			log.Info("assignment changed", "change", line)
		}
	}
}

// pace is before when what could not be done is not tried again: slots that are held
// past their rest, and a rotation that was refused. All daemons are asked each time.
type pace struct {
	rests, rotation time.Time
	period          time.Duration // rotate_keys
	// What is refused until then, for people; "": nothing.
	unrotated, unfinished string
}

// warn has whoever asked for it (Warn) know what is left to do and cannot be done.
func (c *Coordinator) warn(p *pace, err error) {
	if c.Warn == nil {
		return
	}
	var all []string
	for _, text := range []string{p.unrotated, p.unfinished} {
		if text != "" {
			all = append(all, text)
		}
	}
	if err != nil && len(all) == 0 && !errors.Is(err, controller.ErrConflict) {
		all = []string{"what is left to do cannot be done yet: " + err.Error()}
	}
	c.Warn(all)
}

// tidyOnce looks once, at a head that stands still.
func (c *Coordinator) tidyOnce(ctx context.Context, head ledger.Head, p *pace) (done []string, err error) {
	if head.Version == 0 {
		return nil, nil
	}
	reading, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if c.Have, err = c.Ledger.Read(reading, head.Version, c.Have); err != nil {
		return nil, err
	}
	rested := rested(c.Have) && !time.Now().Before(p.rests)
	var ops []controller.Op
	settled := head.Turn >= int(kinds) && !head.Open
	if !head.Left {
		p.unfinished = ""
	} else if settled {
		if done, err = c.finish(ctx, head, p); len(done) > 0 || errors.Is(err, controller.ErrConflict) {
			return done, err
		}
		// What else there is to do does not wait for it, as for connections that a migration
		// waits for.
		defer func(finish error) {
			if err == nil && len(done) == 0 {
				err = finish
			}
		}(err)
	}
	// A migration ends when its connections have.
	if settled && !rested && !half(c.Have) && !c.Have.Migrating() {
		if ops, err = c.rotate(reading, c.Have, p); err != nil || len(ops) == 0 {
			return nil, err
		}
	}
	ch, err := c.Do(ctx, Options{}, ops...)
	if len(ops) > 0 {
		c.rotated(err, p)
	}
	if rested && err == nil && len(ch.Steps) == 0 {
		p.rests = time.Now().Add(heldRest)
		ch, err = c.letGo(ctx, ch)
	}
	if ch != nil {
		done = ch.Lines
	}
	return done, err
}

// heldRest is how long slots that are held past their rest are not looked at again: by
// connections that live, or by agents that do not answer.
const heldRest = 5 * time.Minute

// letGoAfter is how long past its rest a removed server's slot is held by an agent that
// neither answers nor says in the store that it lives. There is nobody to ask once the
// machine is switched off, which was allowed; where it was removed by force, and only its
// agent is dead, there is a day to start that.
const letGoAfter = 24 * time.Hour

// rested says that some slot's rest is over.
func rested(a *controller.Assignment) bool {
	return slices.ContainsFunc(a.VIPs, func(v controller.VIP) bool {
		return slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return restedFor(&s, 0) })
	})
}

// restedFor says that the slot's rest was over so long ago.
func restedFor(s *controller.Slot, ago time.Duration) bool {
	return s.State == controller.Resting && !s.RestUntil.Add(ago).After(time.Now())
}

// letGo frees slots of removed servers whose agents have not answered for long; ch found
// nothing else to do. One that is cut off from this controller alone, or out of breath, may
// count connections: its lease lives, and its slot is somebody's to let go by name.
func (c *Coordinator) letGo(ctx context.Context, ch *Change) (*Change, error) {
	var without []string
	for _, d := range ch.view.Silent() {
		if _, lives := ch.view.reports[d.Name]; lives {
			continue
		}
		var slots []controller.Slot
		for i := range ch.view.Base.VIPs {
			for _, s := range ch.view.Base.VIPs[i].Slots {
				if s.Server == d.Name {
					slots = append(slots, s)
				}
			}
		}
		if len(slots) > 0 && !slices.ContainsFunc(slots, func(s controller.Slot) bool { return !restedFor(&s, letGoAfter) }) {
			without = append(without, d.Name)
		}
	}
	if len(without) == 0 {
		return ch, nil
	}
	return c.Do(ctx, Options{Without: without})
}
