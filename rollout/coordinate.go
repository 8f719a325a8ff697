// Package rollout changes what a deployment goes by: it asks all daemons what they
// have in force, plans a change on the store's newest version, has it agreed on
// there, and lets daemons go by each version in the order that keeps neighbours
// mixable. Its edge is Coordinator, Open and Owned; whoever serves the API or a
// command calls these.
package rollout

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// Coordinator changes what daemons share: it asks all of them, computes a
// series of assignments, and puts it into the store. It keeps nothing: two may
// work at the same time, and one of them is told to try again.
type Coordinator struct {
	// Config is the file of the machine that this runs on: its secret, certificates
	// and folder. What is wanted of the deployment the store has.
	Config func() *config.Config
	Log    *slog.Logger // nil: silent
	// Fits, if set, says whether balancers have room for an assignment
	// (tables.Fits), so that a series is refused before its first step
	// and not by a daemon in its middle.
	Fits func(*controller.Assignment, config.Limits) error

	// Ledger is the store's. Who is noted in it beside a change.
	Ledger *ledger.Ledger
	Who    string
	// Have is an assignment that need not be fetched from there, nil: none.
	Have *controller.Assignment
	// Memo, if set, is what was worked out for earlier changes.
	Memo *Memo

	// Warn, if set, is told by Lead what is left to do and cannot be done: all that there
	// is at the moment, a line each.
	Warn func([]string)

	// Clients, if set, keeps connections to daemons, for a process that makes many changes.
	Clients *api.Clients

	// dialTo is Clients.Dial, or a test's.
	dialTo func(endpoint string, t config.TLS) (fairleadv1connect.FairleadClient, error)
}

// Options of a change.
type Options struct {
	// Force makes it although live connections may break by it, or daemons
	// that do not answer fall behind.
	Force bool
	// Without are daemons known to be gone: not asked, not waited for.
	Without []string
	// Expect is the version that the change was planned on, 0: any. Where another is
	// the newest it is refused (Outdated).
	Expect uint64
	// File is what messages call the text of a plan or an apply, one that FileName takes;
	// "": fairlead.yaml.
	File string
	// OnlyKnown asks daemons only where the store's text or newest version has them, as for
	// a caller who may look and not send this process anywhere else. Plans only.
	OnlyKnown bool
	// later: a part of a series, in which a name of Without that was known
	// may be gone.
	later bool
}

// Change is what a change did, or (Plan) would do.
type Change struct {
	From, To uint64 // versions; the same if nothing was to do
	Lines    []string
	Notes    []string
	Silent   []*Daemon // they did not answer and stay where they were
	Steps    []*controller.Assignment
	// Diff is how a text changes the desired state (config.Diff); nil: it does not. Of
	// what verbs do to it, Lines tell.
	Diff    []string
	view    *View
	without []string
	// believed: daemons' reports were gone by, and nobody was asked (believe.go).
	believed bool
	text     []byte      // the desired state from the first step on; nil: it stays
	why      string      // a line of the history beside the steps'
	more     func() bool // the steps end before what is wanted, as connections are counted anew
	whole    bool        // the desired state says what the series ends in: a leader may finish it
}

// Answered says whether any daemon did.
func (ch *Change) Answered() bool {
	return ch.view != nil && slices.ContainsFunc(ch.view.Daemons, func(d *Daemon) bool { return d.Err == nil })
}

// PlanFile computes what Apply of text would do and does nothing.
func (c *Coordinator) PlanFile(ctx context.Context, text []byte, o Options) (*Change, error) {
	to, err := c.toText(ctx, cmp.Or(o.File, theFile), text, o.Force)
	if err != nil {
		return nil, err
	}
	ch, err := c.plan(ctx, o, to)
	if err != nil {
		return ch, err
	}
	// What comes after connections were counted anew, as of now.
	for n := len(ch.Steps); n > 0; {
		if err := wanted(ctx); err != nil {
			return nil, err
		}
		steps, lines, err := controller.Plan(to.cfg, ch.Steps[len(ch.Steps)-1], ch.view.Live, time.Now(), o.Force)
		if err != nil || len(steps) == 0 {
			break
		}
		ch.Steps, ch.Lines, ch.To = append(ch.Steps, steps...), append(ch.Lines, lines...), steps[len(steps)-1].Version
	}
	return ch, nil
}

// Apply makes text, a whole fairlead.yaml, the desired state, and brings all daemons
// there. What stands in it of a machine's own (config.Desired) is not looked at. Where
// a plan ends because connections must be counted anew, it counts them and goes on.
func (c *Coordinator) Apply(ctx context.Context, text []byte, o Options) (*Change, error) {
	to, err := c.toText(ctx, cmp.Or(o.File, theFile), text, o.Force)
	if err != nil {
		return nil, err
	}
	return c.apply(ctx, to, o)
}

func (c *Coordinator) apply(ctx context.Context, to aim, o Options) (*Change, error) {
	var done *Change
	for range 8 {
		ch, err := c.plan(ctx, o, to)
		if err == nil && done != nil && ch.text != nil {
			break // the text is another than this change made it
		}
		if err == nil && len(ch.Steps) > 0 {
			last := ch.Steps[len(ch.Steps)-1]
			ch.whole, ch.more = true, sync.OnceValue(func() bool {
				steps, _, err := controller.Plan(to.cfg, last, controller.LiveCounts{}, time.Now(), true)
				return err != nil || len(steps) > 0 || controller.Waits(to.cfg, last)
			})
			go ch.more() // while the first steps are handed on
		}
		if err == nil {
			err = c.enact(ctx, ch)
		}
		if done == nil {
			done, o.later = ch, true
		} else if err != nil {
			return done, fmt.Errorf("version %d is in force, and the rest is not done: %w", done.To, err)
		} else {
			done.To, done.Silent = ch.To, ch.Silent
			done.Lines, done.Steps = append(done.Lines, ch.Lines...), append(done.Steps, ch.Steps...)
		}
		if err != nil || ch.more == nil || !ch.more() {
			return done, err
		}
	}
	return done, errors.New("somebody else applies another file at the same time; agree on one and run it again")
}

// Do carries out verbs, and has the desired state say so.
func (c *Coordinator) Do(ctx context.Context, o Options, ops ...controller.Op) (*Change, error) {
	for i := range ops {
		if ops[i].Kind == controller.Rotate && ops[i].Key == nil {
			ops[i].Key = make([]byte, 32)
			rand.Read(ops[i].Key)
		}
	}
	ch, err := c.plan(ctx, o, aim{
		ops: ops,
		steps: func(v *View) ([]*controller.Assignment, []string, error) {
			return controller.Change(v.Base, v.Live, time.Now(), o.Force, ops...)
		},
		text: func(v *View, last *controller.Assignment) ([]byte, []string, error) { return c.edited(v, last, ops) },
	})
	if err != nil {
		return ch, misnamed(ch, ops, err)
	}
	var after bool
	ch.whole, after = c.left(ch)
	ch.more = func() bool { return after }
	return ch, c.enact(ctx, ch)
}

// withoutServers notes the VIPs that ch leaves without a server for new
// connections.
func (ch *Change) withoutServers() {
	takes := func(v *controller.VIP) bool {
		return slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return s.State == controller.Active })
	}
	last := ch.Steps[len(ch.Steps)-1]
	for i := range last.VIPs {
		v := &last.VIPs[i]
		if before, ok := ch.view.Base.VIP(v.Name); !takes(v) && (!ok || takes(before)) {
			if v.Chains() {
				why := "buckets have nowhere to go; undrain one, or lead clients elsewhere"
				if v.Scheme.Row().Switched {
					why = "a switch cannot refuse any; undrain one, or lead clients elsewhere (`fairlead drain` of every switch withdraws the routes of all VIPs)"
				}
				ch.Notes = append(ch.Notes, fmt.Sprintf("VIP %s: all its servers drain, and go on taking new connections all the same, as %s", v.Name, why))
				continue
			}
			remedy := "add one"
			if slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return s.State == controller.Draining || s.State == controller.Standby }) {
				remedy = "undrain one"
			}
			ch.Notes = append(ch.Notes, fmt.Sprintf("VIP %s: no server takes new connections now; %s", v.Name, remedy))
		}
	}
}

func (c *Coordinator) plan(ctx context.Context, o Options, a aim) (*Change, error) {
	if ch := c.planBelieving(ctx, o, a); ch != nil {
		return ch, nil
	}
	v, err := c.look(ctx, a.cfg, o)
	if err != nil {
		return nil, err
	}
	return c.planFrom(ctx, v, o, a)
}

// planFrom plans on what daemons say.
func (c *Coordinator) planFrom(ctx context.Context, v *View, o Options, a aim) (_ *Change, err error) {
	if err := c.expect(ctx, v, o); err != nil {
		return nil, err
	}
	ch := &Change{view: v, without: o.Without, why: a.why}
	if v.Base == nil && a.cfg == nil {
		return ch, controller.Refusal{"the store is empty; begin with `fairlead apply`"}
	}
	if v.Base == nil {
		return c.begin(ctx, ch, a, o)
	}
	if err := v.checkWithout(o); err != nil {
		return nil, err
	}
	for {
		if err := wanted(ctx); err != nil {
			return nil, err
		}
		ch.From, ch.To = v.Base.Version, v.Base.Version
		if ch.Steps, ch.Lines, err = a.steps(v); err != nil {
			return ch, err
		}
		// Agents of servers that come with these steps must know them first.
		var more []*Daemon
		for _, step := range ch.Steps {
			if more = c.unknown(v, step, o.Without); len(more) > 0 {
				break
			}
		}
		if len(more) == 0 {
			break
		}
		v.join(ctx, more)
	}
	ch.From, ch.To, ch.Notes = v.inForce(), v.Base.Version, v.notes()
	var refused controller.Refusal
	if n := len(ch.Steps); n > 0 {
		ch.To = ch.Steps[n-1].Version
		ch.withoutServers()
		for _, step := range ch.Steps {
			if c.Fits == nil {
				break
			}
			// A step in the middle can need more than the last: servers that
			// go have their slots still when others have come.
			if err := c.Fits(step, v.cfg.Limits); err != nil {
				refused = append(refused, fmt.Sprintf("version %d %v", step.Version, err))
				break
			}
		}
	}
	if err := c.bring(ctx, ch, a); err != nil {
		return ch, err
	}
	for _, d := range v.Silent() {
		if !d.Leaving {
			ch.Silent = append(ch.Silent, d)
			if d.Kind == Host && !serves(v.Base, d.Name) {
				ch.Notes = append(ch.Notes, fmt.Sprintf("%s is new and its agent does not answer: start `fairlead host` there before it takes new connections, "+
					"or, if it shall have none (not with scheme cheetah on TCP), write api: none, or `fairlead add VIP %s --standby --agent none`", d.Name, d.Name))
			}
		}
	}
	from, todo := v.Base, ch.Steps
	if v.unfinished() { // those that are silent may have the version before alone
		prior, err := c.read(ctx, v.head.Prior)
		if err != nil {
			return ch, err
		}
		from, todo = prior, append([]*controller.Assignment{v.Base}, todo...)
	}
	if !o.Force && len(ch.Silent) > 0 && len(todo) > 0 {
		v.askLast(ctx, ch.Silent)
		refused = append(refused, mayLag(v, ch.Silent, from, todo)...)
	}
	if len(refused) > 0 {
		return ch, refused
	}
	return ch, nil
}

// lacking is what goes wrong where a server of a's VIPs has no agent.
func lacking(a *controller.Assignment, server string) string {
	for i := range a.VIPs {
		if v := &a.VIPs[i]; v.Chains() && slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return s.Server == server }) {
			return "packets could be passed on neither to it nor by it"
		}
	}
	return "its connections would get no cookies"
}

// remedy is start, where d is not there. One that waits for a first version would wait for
// what is refused. (It need not be new: one whose disk is damaged waits, too, while its programs go on.)
func remedy(d *Daemon, start string) string {
	if waits(d.Err) {
		return "it runs; if it is new, apply a file that lacks it first, and then this one"
	}
	return start
}

// mayLag refuses steps that cannot be mixed with what daemons that do not
// answer may still go by, which is from: their programs run on without the daemon.
func mayLag(v *View, silent []*Daemon, from *controller.Assignment, steps []*controller.Assignment) (refused controller.Refusal) {
	for _, d := range silent {
		from, steps := from, steps
		for len(steps) > 0 && d.Last >= steps[0].Version { // it was heard of since, as going by that
			from, steps = steps[0], steps[1:]
		}
		base := d.concern(from)
		for _, step := range steps {
			step = d.concern(step)
			server, err := "", controller.Mixable(base, step)
			if d.Kind == Host {
				server, err = d.Name, controller.HostMayLag(base, step, d.Name)
			}
			if err == nil {
				err = controller.TunnelsMayLag(base, step, server)
			}
			if err != nil && d.Kind == Host && !serves(v.Base, d.Name) {
				refused = append(refused, fmt.Sprintf("%s does not answer (%s), so %s; %s", d.Name, api.ErrorText(d.Err), lacking(steps[len(steps)-1], d.Name), remedy(d, "start `fairlead host` there first")))
				break
			}
			if err != nil {
				refused = append(refused, fmt.Sprintf("%s does not answer (%s), and its programs may run on with version %d: %s; %s, or --without %s if the machine is gone",
					d.Name, api.ErrorText(d.Err), from.Version, err, remedy(d, "start it"), d.Name))
				break
			}
			if err := controller.MissedMayLag(base, step, d.Last, server); err != nil {
				refused = append(refused, fmt.Sprintf("%s does not answer (%s), and its programs run on: %s; start it, or --without %s if the machine is gone",
					d.Name, api.ErrorText(d.Err), err, d.Name))
				break
			}
		}
	}
	return refused
}

// concern is the part of a that d's packets go by: a switch has the VIPs of
// scheme faild, balancers the others, an agent all.
func (d *Daemon) concern(a *controller.Assignment) *controller.Assignment {
	if d.Kind == Host {
		return a
	}
	part := *a
	part.VIPs = slices.DeleteFunc(slices.Clone(a.VIPs), func(v controller.VIP) bool {
		return (v.Scheme.Row().Switched) != (d.Kind == Switch)
	})
	return &part
}

// serves: server has a slot in a.
func serves(a *controller.Assignment, server string) bool {
	return slices.ContainsFunc(a.VIPs, func(v controller.VIP) bool {
		return slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return s.Server == server })
	})
}

// enact has the base and all steps agreed on, and everybody that answered go by them.
func (c *Coordinator) enact(ctx context.Context, ch *Change) error {
	silent := map[*Daemon]error{}
	for _, d := range ch.view.Silent() {
		silent[d] = d.Err
	}
	err := c.agree(ctx, ch)
	if c.Log != nil {
		for _, line := range ch.Lines {
			c.Log.Info("assignment changed", "change", line)
		}
	}
	for _, d := range ch.view.Daemons {
		if d.Err != nil && silent[d] == nil {
			ch.Silent = append(ch.Silent, d)
		}
	}
	return err
}

// Code gives err the code that the schema promises, for a service to answer.
func Code(err error) error {
	var (
		refused  controller.Refusal
		notFound controller.NotFound
		invalid  controller.Invalid
		stopped  *Stopped
		outdated *Outdated
		problems config.Problems
		coded    *connect.Error
	)
	if _, done := err.(*connect.Error); done || err == nil {
		return err
	}
	switch {
	case errors.As(err, &refused):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.As(err, &notFound):
		return connect.NewError(connect.CodeNotFound, err)
	case errors.As(err, &invalid):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.As(err, &problems):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.As(err, &outdated):
		return connect.NewError(connect.CodeAborted, err)
	case errors.Is(err, store.ErrFull), errors.Is(err, ledger.ErrForeign):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, ErrNoStore): // another controller may reach more of it
		return connect.NewError(connect.CodeUnavailable, err)
	case errors.As(err, &stopped), errors.Is(err, controller.ErrConflict):
		return connect.NewError(connect.CodeAborted, err)
	case errors.As(err, &coded):
		return err
	}
	return connect.NewError(connect.CodeInternal, err)
}
