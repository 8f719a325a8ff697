package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// The desired state is a text in the store (a fairlead.yaml without what is a machine's
// own), which each version names that was planned from it:
//
//	apply: the file's text ──────────────┐
//	rollback: the text of a version ─────┼─▶ plan ─▶ the first version of the series brings it
//	a verb: the store's text, edited ────┘
//
// A text that changes no assignment comes with a version that has the same content as
// the one before, so that there is one number for all.

// aim is what a change is to bring about.
type aim struct {
	// cfg is what it goes by; nil: the store's desired state.
	cfg *config.Config
	// ops are the verbs that bring it about, if they do.
	ops []controller.Op
	// steps are the way there from v.
	steps func(v *View) ([]*controller.Assignment, []string, error)
	// text is the desired state from then on, last being the newest of the steps, and
	// what people should know of it; nil: it stays.
	text func(v *View, last *controller.Assignment) (text []byte, notes []string, err error)
	// why is a line of the history beside the steps', "": none.
	why string
}

// theFile is the name in messages of a text that somebody applies.
const theFile = "fairlead.yaml"

// toText is the aim of text, whatever the store has.
func (c *Coordinator) toText(ctx context.Context, name string, text []byte, force bool) (aim, error) {
	if err := wanted(ctx); err != nil {
		return aim{}, err
	}
	cfg, err := c.Config().Desired(name, text)
	if err != nil {
		return aim{}, err
	}
	shared, err := cfg.Shared(text)
	if err != nil {
		return aim{}, err
	}
	return aim{
		cfg: cfg,
		steps: func(v *View) ([]*controller.Assignment, []string, error) {
			return controller.Plan(cfg, v.Base, v.Live, time.Now(), force)
		},
		text: func(*View, *controller.Assignment) ([]byte, []string, error) { return shared, nil, nil },
	}, nil
}

// wanted says that whoever asked for a change has given up, or his time is over: what
// comes next may take long, and nobody waits for it.
func wanted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("given up before anything more was changed: %w", err)
	}
	return nil
}

// Desired is the desired state in the store and its newest version, which
// Options.Expect takes; nil where it has none yet.
func (c *Coordinator) Desired(ctx context.Context) (text []byte, version uint64, err error) {
	v := &View{}
	err = c.readDesired(ctx, v)
	return v.text, v.head.Version, err
}

// readDesired fills in the store's head and desired state, and what that is on this
// machine: of its file alone where the store has none.
func (c *Coordinator) readDesired(ctx context.Context, v *View) (err error) {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if v.head, err = c.Ledger.Head(bounded); err != nil {
		return noStore(err)
	}
	if v.text, err = c.Ledger.Text(bounded, v.head.Desired); err != nil {
		return noStore(err)
	}
	return nil
}

// config is what v goes by on this machine.
func (c *Coordinator) config(v *View) (*config.Config, error) {
	if v.text == nil {
		return c.Config(), nil
	}
	cfg, err := c.Memo.desired(c.Config(), config.OfVersion(v.head.Desired.Version), v.text)
	if err != nil {
		return nil, fmt.Errorf("what the store has is not for this build, so it changes nothing: %w", err)
	}
	return cfg, nil
}

// Wanted is the desired state on this machine; of its file alone where the store has none.
func (c *Coordinator) Wanted(ctx context.Context) (*config.Config, error) {
	v := &View{}
	if err := c.readDesired(ctx, v); err != nil {
		return nil, err
	}
	return c.config(v)
}

// Rollback makes the text of a version the desired state again: a change as any other,
// planned from what is in force now, so that no connection breaks by it. Keys do not go
// back.
func (c *Coordinator) Rollback(ctx context.Context, version uint64, o Options) (*Change, error) {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	text, err := c.Ledger.TextOf(bounded, version)
	switch {
	case errors.Is(err, ledger.ErrForgotten):
		return nil, controller.NotFound(fmt.Sprintf("version %d: the store does not have what was wanted then; `fairlead history` lists versions, of which the newest %d can be rolled back to", version, ledger.Kept))
	case err != nil:
		return nil, noStore(err)
	case text == nil:
		return nil, controller.NotFound(fmt.Sprintf("version %d was made before the store had a configuration", version))
	}
	to, err := c.toText(ctx, config.OfVersion(version), text, o.Force)
	if err != nil {
		return nil, fmt.Errorf("what was wanted then is not for this build: %w", err)
	}
	to.why = fmt.Sprintf("rollback to version %d", version)
	return c.apply(ctx, to, o)
}

// bring fills in the text that comes with ch's first step, and how it differs. Where
// there is no step, the text comes with one that changes nothing else.
func (c *Coordinator) bring(ctx context.Context, ch *Change, a aim) error {
	v := ch.view
	if err := wanted(ctx); err != nil {
		return err
	}
	if a.text == nil {
		return nil
	}
	last := v.Base
	if n := len(ch.Steps); n > 0 {
		last = ch.Steps[n-1]
	}
	if a.cfg != nil && last != nil && controller.Waits(a.cfg, last) {
		ch.Notes = append(ch.Notes, "what is wanted of a scheme beyond a migration waits until that is over; the controller that leads goes on then")
	}
	text, notes, err := a.text(v, last)
	if err != nil || text == nil {
		ch.Notes = append(ch.Notes, notes...)
		return err
	}
	if len(a.ops) == 0 { // verbs say what they do
		if ch.Diff, err = config.Diff(v.text, text); err != nil || len(ch.Diff) == 0 && v.text != nil && !v.textAhead() {
			return err
		}
	}
	ch.Notes = append(ch.Notes, notes...)
	ch.text = text
	// What the store does not have yet is put into it, with the text; or the text after it,
	// where a daemon has one of that number already and takes only a newer.
	if len(ch.Steps) == 0 && v.Base != nil && (v.Base == v.agreed || v.textAhead()) {
		next := v.Base.Clone()
		next.Version++
		ch.Steps = []*controller.Assignment{next}
		ch.Lines = []string{fmt.Sprintf("version %d: the configuration, and nothing that packets go by", next.Version)}
		ch.To = next.Version
	}
	return nil
}

// textAhead: a daemon goes by a text that the store does not have, and by none that is
// as old as the store's.
func (v *View) textAhead() bool {
	for _, r := range v.reports {
		if r.Ahead > 0 && r.Ahead >= v.head.Desired.Version {
			return true
		}
	}
	return false
}

// edited is the store's text with what ops did from before to last.
func (c *Coordinator) edited(v *View, last *controller.Assignment, ops []controller.Op) (text []byte, notes []string, err error) {
	if v.text == nil {
		return nil, nil, nil
	}
	e, err := config.Edit(v.text)
	if err != nil {
		return nil, nil, err
	}
	for _, op := range ops {
		if err := edit(e, v.Base, last, op); err != nil {
			return nil, nil, controller.Invalid(err.Error())
		}
	}
	if text, err = e.Text(); err != nil {
		return nil, nil, err
	}
	if bytes.Equal(text, v.text) {
		return nil, nil, nil
	}
	cfg, err := c.Memo.desired(c.Config(), theFile, text)
	if problems := (config.Problems)(nil); errors.As(err, &problems) {
		return nil, []string{fmt.Sprintf("the configuration cannot say this (%s: %s), so the next `fairlead apply` undoes it", problems[0].Field, problems[0].Wrong)}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	// What it said otherwise before is not this change's.
	after, _ := differs(cfg, last)
	if before, _ := differs(v.cfg, v.Base); after > before {
		notes = append(notes, "the configuration says more than this: `fairlead plan` shows what `fairlead apply` of it would change")
	}
	return text, notes, nil
}

// differs is how much cfg wants of a that it is not: 0 where that cannot be planned.
func differs(cfg *config.Config, a *controller.Assignment) (int, error) {
	_, lines, err := controller.Plan(cfg, a, controller.LiveCounts{}, time.Now(), true)
	if err != nil {
		return 0, err
	}
	if controller.Waits(cfg, a) {
		return len(lines) + 1, nil
	}
	return len(lines), nil
}

// edit has e say of op's server what last has.
func edit(e *config.Editor, before, last *controller.Assignment, op controller.Op) error {
	if op.Server == "" { // a key rotation
		return nil
	}
	is := func(a *controller.Assignment, vip string) (slot controller.Slot, ok bool) {
		v, _ := a.VIP(vip)
		if v == nil {
			return slot, false
		}
		for _, s := range v.Slots {
			if s.Server == op.Server && s.State != controller.Resting {
				return s, true
			}
		}
		return slot, false
	}
	for i := range last.VIPs {
		v := &last.VIPs[i]
		named, _ := last.VIP(op.VIP)
		together := named != nil && named.Scheme.Row().Switched && v.Scheme.Row().Switched // they share their pool
		if op.VIP != "" && op.VIP != v.Name && !together {
			continue
		}
		if number, ok := v.InTierTwo(op.Server); ok {
			at := slices.IndexFunc(v.TierTwo, func(s controller.Slot) bool { return s.Number == number })
			e.SetDrain(op.Server, v.TierTwo[at].State == controller.Draining)
			continue
		}
		was, had := is(before, v.Name)
		now, has := is(last, v.Name)
		switch {
		case !had && !has:
		case !has:
			e.RemoveMember(v.Name, op.Server)
		default:
			if !had || was.API != now.API {
				if err := e.SetServer(now.Server, now.Address, now.API); err != nil {
					return err
				}
			}
			e.SetMember(v.Name, config.Member{Name: now.Server, Weight: now.Weight, Drain: now.State == controller.Draining, Standby: now.State == controller.Standby})
		}
	}
	return nil
}

// Outdated refuses a change that was planned on another version than the newest, with
// what was done since.
type Outdated struct {
	Expected, Newest uint64
	// Since are the versions after Expected, and Diff is how the desired state
	// differs from that of then (config.Diff).
	Since []ledger.Record
	Diff  []string
}

func (o *Outdated) Error() string {
	if o.Expected > o.Newest {
		return fmt.Sprintf("planned on version %d, and the newest is %d: another deployment's plan, or the store was put back from an older copy; plan it again", o.Expected, o.Newest)
	}
	lines := []string{fmt.Sprintf("planned on version %d, and the newest is %d; plan it again. Since then:", o.Expected, o.Newest)}
	for _, r := range o.Since {
		lines = append(lines, fmt.Sprintf("version %d, %s, %s: %s", r.Version, r.At.Local().Format(time.DateTime), r.Who, strings.Join(r.What, "; ")))
	}
	if len(o.Diff) > 0 {
		lines = append(lines, "--- "+config.OfVersion(o.Expected)+", which it was planned on", "+++ "+config.OfVersion(o.Newest)+", the newest")
	}
	return strings.Join(append(lines, o.Diff...), "\n")
}

// expect refuses a change that was planned on another version than v's.
func (c *Coordinator) expect(ctx context.Context, v *View, o Options) error {
	if o.Expect == 0 || o.later || o.Expect == v.head.Version {
		return nil
	}
	out := &Outdated{Expected: o.Expect, Newest: v.head.Version}
	if o.Expect > v.head.Version {
		return out
	}
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var err error
	if out.Since, err = c.Ledger.History(bounded, o.Expect+1, v.head.Version); err != nil {
		return noStore(err)
	}
	then, err := c.Ledger.TextOf(bounded, o.Expect)
	if err == nil {
		out.Diff, err = config.Diff(then, v.text)
	}
	if err != nil && !errors.Is(err, ledger.ErrForgotten) {
		return noStore(err)
	}
	return out
}
