package rollout

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// A change is planned on the version that the store has, agreed on there, and then it
// is the daemons' turn, kind by kind. They fetch it by themselves (daemon/member) and
// say so under their leases.

// agreed fills in what the store has. Where it has nothing yet, the first change
// brings what daemons have into it.
func (c *Coordinator) agreed(ctx context.Context, v *View) (err error) {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	both, asking := errgroup.WithContext(bounded)
	both.Go(func() error { return c.readDesired(asking, v) })
	both.Go(func() (err error) {
		v.reports, err = c.Ledger.Reports(asking)
		return noStore(err)
	})
	if err := both.Wait(); err != nil || v.head.Version == 0 {
		return err
	}
	if v.agreed, err = c.Ledger.Newest(bounded, v.head, c.Have); err != nil {
		return noStore(err)
	}
	return nil
}

// read is a version of the store's.
func (c *Coordinator) read(ctx context.Context, version uint64) (*controller.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	a, err := c.Ledger.Read(ctx, version, c.Have)
	return a, noStore(err)
}

// unfinished: the store's newest version has not been every kind's turn, or nobody saw
// to the end that all go by it, so that a daemon may go by the one before.
func (v *View) unfinished() bool {
	return v.agreed != nil && v.Base == v.agreed && (v.head.Turn < int(kinds) || v.head.Open) && v.head.Prior > 0
}

// storeTimeout bounds what is asked of the store, but for waiting for daemons.
const storeTimeout = 15 * time.Second

// ErrNoStore: no majority of the store answers, so that nothing can be changed.
var ErrNoStore = errors.New("nothing was changed, and everything forwards on as it does")

func noStore(err error) error {
	if lost(err) {
		return fmt.Errorf("%w; %w", ErrNoStore, err)
	}
	return err
}

// chooseAgreed takes the store's newest version as the base. Daemons may be ahead of
// it: the store was put back from an older copy. What was acknowledged stands: the newest
// that they have goes into the store first.
func (v *View) chooseAgreed() {
	ahead := false
	for _, d := range v.Daemons {
		switch {
		case d.Err != nil || d.Held == nil:
		case d.Held.HashKey != v.agreed.HashKey:
			d.Err = errForeign
		default:
			ahead = ahead || d.Held.Version > v.agreed.Version || d.Held.Version == v.agreed.Version && d.Held.Digest() != v.agreed.Digest()
		}
	}
	v.Base = v.agreed
	if !ahead {
		return
	}
	v.chooseNewest()
	if v.Base.Version == v.agreed.Version { // theirs is another one
		v.Base = v.Base.Clone()
		v.Base.Version += apart
	}
}

// begin is the change that an empty store begins with where no daemon has an
// assignment. One that is silent might have.
func (c *Coordinator) begin(ctx context.Context, ch *Change, a aim, o Options) (*Change, error) {
	v := ch.view
	var refused controller.Refusal
	for _, d := range v.Silent() {
		if waits(d.Err) || v.waits(d) {
			d.Err = nil // it is there, and gets what is agreed on as the others do
			continue
		}
		ch.Silent = append(ch.Silent, d)
		if !o.Force {
			refused = append(refused, fmt.Sprintf("the store is empty, and %s does not answer (%v), so that nobody knows whether it goes by an assignment of before; start it, --without %s, or --force if this deployment is new",
				d.Name, api.ErrorText(d.Err), d.Name))
		}
	}
	for _, name := range o.Without {
		if !v.names(name) {
			return nil, controller.Invalid(fmt.Sprintf("without %s: the file names no such daemon", name))
		}
	}
	var err error
	if ch.Steps, ch.Lines, err = a.steps(v); err == nil {
		err = c.bring(ctx, ch, a)
	}
	if err != nil {
		return nil, err
	}
	ch.To = ch.Steps[len(ch.Steps)-1].Version
	for _, step := range ch.Steps {
		if c.Fits == nil {
			break
		}
		if err := c.Fits(step, v.cfg.Limits); err != nil {
			refused = append(refused, fmt.Sprintf("version %d %v", step.Version, err))
		}
	}
	if len(refused) > 0 {
		return ch, refused
	}
	return ch, nil
}

// waits: d says in the store that it is there and has nothing to go by: it does not
// know itself what it is, as it is new (daemon/member, await).
func (v *View) waits(d *Daemon) bool {
	r, ok := v.reports[d.Name]
	return ok && r.Kind == int(d.Kind) && r.Waits
}

// waits: the daemon answers that it has nothing to go by.
func waits(err error) bool {
	return connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeUnavailable && strings.Contains(err.Error(), Waiting)
}

// Waiting is a daemon's phase while neither its disk nor the store has an assignment.
const Waiting = "waiting for a first version, which `fairlead apply` makes"

// agree puts ch's steps into the store, each when all have the one before.
func (c *Coordinator) agree(ctx context.Context, ch *Change) error {
	head, before, text, made := ch.view.head, ch.view.agreed, ch.text, false
	if len(ch.Steps) > 0 {
		text = nil // it comes with the first of them
	}
	commit := func(step *controller.Assignment, what []string, left bool) (err error) {
		turn := 1
		if before != nil && step.Version == before.Version+1 && controller.AgentsMayLag(before, step) == nil {
			turn = int(kinds) // nobody has to wait for agents, and all have the version before
		}
		if head, err = c.append(ctx, head, before, step, ledger.Change{What: what, Text: text, Turn: turn, Left: left}); err == nil {
			before, text, made = step, nil, true
		}
		if made && errors.Is(err, ErrNoStore) { // something was changed
			return fmt.Errorf("version %d is in force, and the store went away before version %d was agreed on (%v); run it again: %w", before.Version, step.Version, store.ErrUnavailable, controller.ErrConflict)
		}
		return err
	}
	if base := ch.view.Base; base != nil {
		if before == nil || base.Version != before.Version {
			if err := commit(base, []string{"taken over from the daemons, which went by it"}, false); err != nil {
				return err
			}
		}
		// A change that stopped half way is finished first.
		if err := c.turns(ctx, &head, base, ch); err != nil {
			return err
		}
	}
	for i, step := range ch.Steps {
		what := linesOf(ch.Lines, step.Version)
		if i == 0 {
			text = ch.text
			if ch.why != "" {
				what = append([]string{ch.why}, what...)
			}
		}
		if err := commit(step, what, ch.whole && (i+1 < len(ch.Steps) || ch.more != nil && ch.more())); err != nil {
			return err
		}
		if err := c.turns(ctx, &head, step, ch); err != nil {
			return err
		}
	}
	return nil
}

// append makes step the head. Where the store's answer is lost it looks whether it is.
func (c *Coordinator) append(ctx context.Context, head ledger.Head, before, step *controller.Assignment, change ledger.Change) (ledger.Head, error) {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	change.Who = cmp.Or(c.Who, "unknown")
	made, err := c.Ledger.Append(bounded, head, before, step, change)
	switch {
	case err == nil:
		return made, nil
	case errors.Is(err, store.ErrConflict):
		return head, fmt.Errorf("version %d: another change came first; run it again: %w", step.Version, controller.ErrConflict)
	case !lost(err):
		return head, err
	}
	looking, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	now, lookErr := c.settled(looking, head)
	switch {
	case lookErr != nil:
		return head, fmt.Errorf("the store went away, and whether version %d was agreed on is not known; run it again when it answers: %w", step.Version, err)
	case now.Version == head.Version:
		return head, noStore(err)
	}
	return head, fmt.Errorf("version %d: the store went away meanwhile, and has version %d now; run it again: %w", step.Version, now.Version, controller.ErrConflict)
}

// settled is the head where something was appended to head and not answered. What is on
// its way yet is refused when it arrives: it finds another head, if of the same version.
func (c *Coordinator) settled(ctx context.Context, head ledger.Head) (ledger.Head, error) {
	if head.Version > 0 {
		if now, err := c.Ledger.Again(ctx, head); !errors.Is(err, store.ErrConflict) {
			return now, err
		}
	}
	return c.Ledger.Head(ctx)
}

// lost: the store may have done what it did not answer.
func lost(err error) bool {
	return errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// linesOf are those of lines that are about a version.
func linesOf(lines []string, version uint64) (of []string) {
	prefix := fmt.Sprintf("version %d: ", version)
	for _, line := range lines {
		if text, ok := strings.CutPrefix(line, prefix); ok {
			of = append(of, text)
		}
	}
	return of
}

// turns waits for the kinds of daemons whose turn it is to go by step, and gives it to
// one kind after the other, until all do.
func (c *Coordinator) turns(ctx context.Context, head *ledger.Head, step *controller.Assignment, ch *Change) error {
	for {
		if err := c.await(ctx, Kind(head.Turn), step, ch); err != nil {
			return err
		}
		next := min(head.Turn+1, int(kinds))
		for next < int(kinds) && !ch.view.has(Kind(next)) {
			next++ // of whom there is nobody, nobody is waited for
		}
		if next == head.Turn && !head.Open {
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, storeTimeout)
		made, err := c.Ledger.Turn(bounded, *head, next)
		cancel()
		if errors.Is(err, store.ErrConflict) {
			return fmt.Errorf("version %d is agreed on, and somebody else goes on from it; run it again to see: %w", step.Version, controller.ErrConflict)
		}
		if err != nil {
			return halfDone(step, err)
		}
		if next == head.Turn { // the last turn, which all have had
			*head = made
			return nil
		}
		*head = made
	}
}

// has: there is a daemon of the kind, as far as file and store know.
func (v *View) has(kind Kind) bool {
	for _, r := range v.reports {
		if r.Kind == int(kind) {
			return true
		}
	}
	return slices.ContainsFunc(v.Daemons, func(d *Daemon) bool { return d.Kind == kind })
}

// halfDone: step is agreed on, and the store went away before all went by it.
func halfDone(step *controller.Assignment, err error) error {
	return fmt.Errorf("version %d is agreed on, and not in force everywhere yet, which breaks no connection: run it again when the store answers (a controller that leads does, too): %w", step.Version, err)
}

// await waits until all daemons of the kinds below a bound go by step: those that
// answered when they were asked, and whose lease lives.
func (c *Coordinator) await(ctx context.Context, bound Kind, step *controller.Assignment, ch *Change) error {
	ctx, cancel := context.WithTimeout(ctx, setTimeout)
	defer cancel()
	sum := step.Digest()
	digest := hex.EncodeToString(sum[:])
	known := map[string]*Daemon{}
	expected := map[string]bool{}
	for _, d := range ch.view.Daemons {
		known[d.Name] = d
		if d.Kind < bound && d.Err == nil && !d.Leaving {
			expected[d.Name] = true
		}
	}
	var waiting map[string]string // for whom, and why
	kinds := map[string]Kind{}
	// before is what had been refused when this began: what was wrong may be put
	// right by now, and whoever refuses tries again.
	var before map[string]uint64
	passed := false
	err := c.Ledger.Await(ctx, func(said map[string]ledger.Report) bool {
		if before == nil {
			before = map[string]uint64{}
			for name, r := range said {
				before[name] = r.Tries
			}
		}
		refused := 0 // of those that are waited for
		waiting = map[string]string{}
		for name := range expected {
			if _, lives := said[name]; !lives && ch.believed && ch.mayMiss(known[name], step) {
				delete(expected, name)
				known[name].Err = errors.New("it was there when the change began, and its lease is over")
				continue
			}
			waiting[name] = "it does not reach the store"
		}
		for name, r := range said {
			d := known[name]
			if r.Kind >= int(bound) || d != nil && (d.Leaving || errors.Is(d.Err, errForeign)) || slices.Contains(ch.without, name) {
				continue
			}
			if r.Waits && (d == nil || step == ch.view.Base) {
				delete(waiting, name) // it waits for a configuration that it is in
				continue
			}
			delete(waiting, name)
			kinds[name] = Kind(r.Kind)
			switch {
			case r.Version > step.Version: // another change went on from here, it seems
				passed = true
			case r.Version == step.Version && r.Digest == digest:
				if d != nil {
					d.Held = step
				}
			case r.Refused == step.Version:
				waiting[name] = r.Error
				if r.Tries > before[name] {
					refused++
				}
			case r.Version == step.Version:
				waiting[name] = fmt.Sprintf("it goes by another version %d", r.Version)
			default:
				waiting[name] = fmt.Sprintf("it goes by version %d", r.Version)
			}
		}
		return len(waiting) == refused // the others are on their way
	})
	if err != nil && ctx.Err() == nil {
		return halfDone(step, err)
	}
	if err == nil && len(waiting) == 0 {
		return c.went(ctx, passed, step)
	}
	if waiting == nil {
		return halfDone(step, err)
	}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		d := known[name]
		if d == nil {
			d = &Daemon{Name: name, Kind: kinds[name]}
			ch.view.Daemons = append(ch.view.Daemons, d)
		}
		d.Err = errors.New(waiting[name])
	}
	return &Stopped{Step: step, Daemons: ch.view.Daemons}
}

// went looks, where daemons are past step, whether the store is, too.
func (c *Coordinator) went(ctx context.Context, passed bool, step *controller.Assignment) error {
	if !passed {
		return nil
	}
	head, err := c.Ledger.Head(ctx)
	if err != nil {
		return halfDone(step, err)
	}
	if head.Version <= step.Version {
		return fmt.Errorf("version %d is agreed on, but daemons go by later ones, which the store does not have: run it again, and the newest of theirs goes into the store first", step.Version)
	}
	return nil
}
