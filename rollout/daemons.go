package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// Kind is what a daemon is, in the order in which daemons get a version: a
// server must know whom to pass packets on to before a balancer or a switch
// sends it some of another server's.
type Kind int

const (
	Host Kind = iota // an agent
	Balancer
	Switch
	kinds
	// Kinds is how many there are.
	Kinds = int(kinds)
)

// Daemon is a balancer, an agent or a switch that shares the assignment, and
// what is known of it. Calls fill in the lower half.
type Daemon struct {
	Name   string
	API    string
	Kind   Kind
	Client fairleadv1connect.FairleadClient
	// Leaving: a server that was removed; it need not answer.
	Leaving bool

	// Held is the assignment that the daemon had in force when last asked;
	// nil: none, or no answer.
	Held *controller.Assignment
	// Last is the version that a daemon that does not answer had when its
	// peers last heard of it; 0: none of them remembers.
	Last uint64
	// unasked: it may not be asked (Options.OnlyKnown).
	unasked bool
	// Err is why the daemon did not answer or did not do as told.
	Err error
}

// askTimeout bounds one call, setTimeout how long daemons may take to go by a version.
const (
	askTimeout = 3 * time.Second
	setTimeout = 15 * time.Second
)

// View is what all daemons say at one time.
type View struct {
	// Daemons: agents before balancers before switches, in the file's order;
	// agents that only the assignment names are the last of their kind.
	Daemons []*Daemon
	// Base is what the next change starts from; nil if neither the store nor a
	// daemon that answers has anything.
	Base *controller.Assignment
	Live controller.LiveCounts
	// cfg is the desired state that the change goes by, and text what the store has;
	// nil: nothing yet.
	cfg  *config.Config
	text []byte
	// head is the store's newest version, and agreed what it is; nil: it has none.
	head   ledger.Head
	agreed *controller.Assignment
	// reports are of the daemons whose leases live.
	reports map[string]ledger.Report
	// places are where daemons may be asked; nil: anywhere.
	places map[string]bool
	// conflicts are who disagreed, and what comes of it.
	conflicts []string
}

func newView() *View {
	return &View{Live: controller.LiveCounts{
		Connections: map[controller.LiveKey]map[uint32]uint64{}, Owned: map[controller.LiveKey]controller.Owned{}, Earlier: map[controller.LiveKey]uint64{},
		Silent: map[string]string{},
	}}
}

// Silent are the daemons that did not answer.
func (v *View) Silent() (silent []*Daemon) {
	for _, d := range v.Daemons {
		if d.Err != nil {
			silent = append(silent, d)
		}
	}
	return silent
}

var kindOf = map[config.Role]Kind{config.RoleHost: Host, config.RoleBalancer: Balancer, config.RoleSwitch: Switch}

// daemons is everybody that v's file names, less those in without.
func (c *Coordinator) daemons(v *View, without []string) ([]*Daemon, error) {
	var all []*Daemon
	for _, s := range v.cfg.Daemons(without...) {
		d := &Daemon{Name: s.Name, API: s.API, Kind: kindOf[s.Role]}
		if err := c.dial(d, v); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, nil
}

func (c *Coordinator) dial(d *Daemon, v *View) (err error) {
	if d.unasked = v.places != nil && !v.places[d.API]; d.unasked {
		return nil
	}
	dial := c.dialTo
	if dial == nil {
		dial = c.Clients.Dial
	}
	if d.Client, err = dial(d.API, v.cfg.TLS); err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	return nil
}

// Look asks every daemon what it has in force and every agent what is live.
func (c *Coordinator) Look(ctx context.Context, without []string) (*View, error) {
	return c.look(ctx, nil, Options{Without: without})
}

// look is Look by cfg, nil: by the desired state that the store has.
func (c *Coordinator) look(ctx context.Context, cfg *config.Config, o Options) (*View, error) {
	v, without := newView(), o.Without
	if err := c.agreed(ctx, v); err != nil {
		return nil, err
	}
	var err error
	if v.cfg = cfg; cfg == nil {
		if v.cfg, err = c.config(v); err != nil {
			return nil, err
		}
	}
	if o.OnlyKnown {
		if v.places, err = c.places(v); err != nil {
			return nil, err
		}
	}
	daemons, err := c.daemons(v, without)
	if err != nil {
		return nil, err
	}
	v.join(ctx, daemons)
	// Servers that left the configuration stand in the assignment alone. One may have
	// a newer version than all others: agents get it first.
	for v.Base != nil {
		more := c.unknown(v, v.Base, without)
		if len(more) == 0 {
			break
		}
		v.join(ctx, more)
	}
	return v, nil
}

// places are where the daemons answer that the store knows; where it has nothing yet,
// those of this machine's file.
func (c *Coordinator) places(v *View) (map[string]bool, error) {
	cfg, err := c.config(v)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, s := range cfg.Daemons() {
		all[s.API] = true
	}
	if v.agreed == nil {
		return all, nil
	}
	for i := range v.agreed.VIPs {
		for _, s := range v.agreed.VIPs[i].Slots {
			all[s.API] = true
		}
	}
	return all, nil
}

// names says whether what the change goes by has a daemon called name.
func (v *View) names(name string) bool {
	_, isBalancer := v.cfg.Balancer(name)
	_, isServer := v.cfg.Server(name)
	_, isSwitch := v.cfg.Switch(name)
	return isBalancer || isServer || isSwitch
}

// checkWithout refuses names in o.Without that nobody knows: by a slip of the
// pen a dead daemon would be waited for.
func (v *View) checkWithout(o Options) error {
	for _, name := range o.Without {
		_, lives := v.reports[name]
		if !o.later && !v.names(name) && !lives && !serves(v.Base, name) {
			return controller.Invalid(fmt.Sprintf("without %s: neither the file nor version %d names such a daemon; if it has left, leave it out", name, v.Base.Version))
		}
	}
	return nil
}

// unknown is View.unknown, with a way to ask them.
func (c *Coordinator) unknown(v *View, a *controller.Assignment, without []string) []*Daemon {
	more := v.unknown(a, without)
	for _, d := range more {
		d.Err = c.dial(d, v)
	}
	return more
}

// unknown is the agents that a names and v does not have.
func (v *View) unknown(a *controller.Assignment, without []string) (more []*Daemon) {
	known := map[string]*Daemon{}
	for _, d := range v.Daemons {
		known[d.Name] = d
	}
	for i := range a.VIPs {
		for _, s := range a.VIPs[i].Slots {
			d := known[s.Server]
			if d == nil && s.API != config.NoAgent && s.API != "" && !slices.Contains(without, s.Server) {
				d = &Daemon{Name: s.Server, API: s.API, Kind: Host, Leaving: true}
				known[s.Server] = d
				more = append(more, d)
			}
			if d != nil && s.State != controller.Resting {
				d.Leaving = false
			}
		}
	}
	return more
}

// join asks more daemons, puts them among the others and chooses the base
// anew.
func (v *View) join(ctx context.Context, more []*Daemon) {
	v.ask(ctx, more)
	v.Daemons = append(v.Daemons, more...)
	slices.SortStableFunc(v.Daemons, func(a, b *Daemon) int { return int(a.Kind - b.Kind) })
	v.choose()
}

// notes are what people should know before a change: who was left out, who
// is brought along.
func (v *View) notes() []string {
	notes := slices.Clone(v.conflicts)
	if v.Base != nil && !slices.Contains(slices.Collect(maps.Values(v.Live.Silent)), unasked) {
		notes = append(notes, v.Base.Migrations(v.Live)...)
	}
	for _, d := range v.Daemons {
		switch {
		case d.Err != nil && d.Leaving:
			notes = append(notes, fmt.Sprintf("%s was removed and does not answer (%s), so its slot is kept; --without %s lets it go", d.Name, api.ErrorText(d.Err), d.Name))
		case d.Err != nil:
		case d.unasked:
			notes = append(notes, fmt.Sprintf("%s is not asked at %s, where the store does not have it, for a caller without the role administer: the plan is made as if it answered", d.Name, d.API))
		case d.Held == nil:
			notes = append(notes, fmt.Sprintf("%s has no assignment yet and gets version %d", d.Name, v.Base.Version))
		case d.Held.Version+1 < v.inForce():
			notes = append(notes, fmt.Sprintf("%s is behind, at version %d, and gets version %d", d.Name, d.Held.Version, v.Base.Version))
		}
	}
	return notes
}

// ask fills in what each of daemons holds, and the live counts.
func (v *View) ask(ctx context.Context, daemons []*Daemon) {
	var mu sync.Mutex
	each(daemons, func(d *Daemon) {
		if d.unasked {
			mu.Lock()
			defer mu.Unlock()
			v.Live.Silent[d.Name] = unasked
			return
		}
		if d.Err != nil { // could not even be dialled
			mu.Lock()
			defer mu.Unlock()
			v.Live.Silent[d.Name] = api.ErrorText(d.Err)
			return
		}
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if d.Held, d.Err = held(ctx, d); d.Err != nil && v.waits(d) {
			d.Err = nil // it is told with the first version that names it
			return
		}
		if d.Err != nil || d.Kind != Host {
			if d.Kind == Host {
				mu.Lock()
				defer mu.Unlock()
				v.Live.Silent[d.Name] = api.ErrorText(d.Err)
			}
			return
		}
		live, err := d.Client.GetLive(ctx, connect.NewRequest(&fairleadv1.GetLiveRequest{}))
		var serving map[uint32]controller.Owned
		if err == nil && hasBuckets(d.Held) {
			serving, err = Owned(ctx, d.Client)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			v.Live.Silent[d.Name] = api.ErrorText(err)
			return
		}
		for id, owned := range serving {
			v.Live.Owned[controller.LiveKey{VIP: id, Server: d.Name}] = owned
		}
		for _, l := range live.Msg.Vips {
			key := controller.LiveKey{VIP: l.Id, Server: d.Name}
			if v.Live.Connections[key] == nil {
				v.Live.Connections[key] = map[uint32]uint64{}
			}
			for _, e := range l.Epochs {
				v.Live.Connections[key][e.Epoch] += e.Connections
			}
			v.Live.Connections[key][controller.NoCookie] += l.NoCookie
			if l.Earlier != nil {
				v.Live.Earlier[key] += *l.Earlier
			}
		}
	})
}

func hasBuckets(a *controller.Assignment) bool {
	return a != nil && slices.ContainsFunc(a.VIPs, func(v controller.VIP) bool { return v.Bucketed() })
}

// Owned asks an agent which buckets its server owns connections of, by VIP id.
// An answer that cannot be right (a bitmap of another length than its buckets)
// is an error.
func Owned(ctx context.Context, agent fairleadv1connect.FairleadClient) (map[uint32]controller.Owned, error) {
	asked := time.Now()
	r, err := agent.GetServing(ctx, connect.NewRequest(&fairleadv1.GetServingRequest{Owned: true}))
	if err != nil {
		return nil, err
	}
	owned := map[uint32]controller.Owned{}
	for _, v := range r.Msg.Vips {
		if !Counted(v) {
			return nil, fmt.Errorf("cannot count the connections of VIP %s: see its status", v.Name)
		}
		if len(v.Owned) != (int(v.Buckets)+7)/8 {
			return nil, fmt.Errorf("says which of %d buckets it owns in %d bytes", v.Buckets, len(v.Owned))
		}
		owned[v.VipId] = controller.Owned{
			Connections: v.Connections, Buckets: int(v.Buckets), Bitmap: v.Owned, Generation: v.Generation,
			// The answer took some time, so that the count is younger than this.
			At: asked.Add(-time.Duration(v.AgeMs) * time.Millisecond),
		}
	}
	return owned, nil
}

// Counted says whether the agent could count what v says of connections and
// buckets; if not, only its state is known. One that counted says when.
func Counted(v *fairleadv1.ServingVIP) bool { return v.AgeMs > 0 || v.Buckets > 0 }

// askLast fills in what those that answer remember of silent.
func (v *View) askLast(ctx context.Context, silent []*Daemon) {
	var asked []*Daemon
	for _, d := range v.Daemons {
		if d.Err == nil && !d.unasked {
			asked = append(asked, d)
		}
	}
	var mu sync.Mutex
	each(asked, func(d *Daemon) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		r, err := d.Client.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
		if err != nil {
			return // one that knows less; the others, or nobody, know more
		}
		mu.Lock()
		defer mu.Unlock()
		for _, p := range r.Msg.Peers {
			if i := slices.IndexFunc(silent, func(d *Daemon) bool { return d.Name == p.Name }); i >= 0 {
				silent[i].Last = max(silent[i].Last, p.AssignmentVersion)
			}
		}
	})
}

// held is what d has in force; nil for none.
func held(ctx context.Context, d *Daemon) (*controller.Assignment, error) {
	r, err := d.Client.GetAssignment(ctx, connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil || len(r.Msg.Assignment) == 0 {
		return nil, err
	}
	return controller.Decode(r.Msg.Assignment)
}

// choose takes the store's newest version as the base, or where it is empty, as it was
// made anew or daemons are of before there was one, the newest that they have.
func (v *View) choose() {
	v.Base, v.conflicts = nil, nil
	if v.agreed != nil {
		v.chooseAgreed()
		return
	}
	v.expelForeign()
	v.chooseNewest()
}

// chooseNewest takes the newest of daemons' own as the base. They may hold different
// ones of the same version: then the one that most hold (in a tie, that the first
// holds) becomes a later version, which goes to everybody.
func (v *View) chooseNewest() {
	var version uint64
	for _, d := range v.Daemons {
		if d.Err == nil && d.Held != nil {
			version = max(version, d.Held.Version)
		}
	}
	groups := group(v.Daemons, func(d *Daemon) ([32]byte, bool) {
		if d.Held.Version != version {
			return [32]byte{}, false
		}
		return d.Held.Digest(), true
	})
	if len(groups) == 0 {
		return
	}
	best := largest(groups)
	v.Base = best[0].Held
	if len(groups) == 1 {
		return
	}
	v.Base = v.Base.Clone()
	v.Base.Version += apart
	for _, g := range groups {
		if g[0] != best[0] {
			v.conflicts = append(v.conflicts, fmt.Sprintf("version %d differs at %s: all get that of %s, as version %d",
				version, names(g), names(best), v.Base.Version))
		}
	}
}

// apart is how far a version that brings disagreeing daemons together is from what they
// have: it is no neighbour of any, and so is taken as by one that was away.
const apart = 2

// inForce is the newest version that daemons have: where they disagree under it,
// the base comes later, and nobody has it yet.
func (v *View) inForce() uint64 {
	if len(v.conflicts) > 0 {
		return v.Base.Version - apart
	}
	return v.Base.Version
}

var errForeign = errors.New("has an assignment of another deployment (or the file's secret was changed): stop it, remove its assignment.json and start it again")

// expelForeign leaves out daemons that have another deployment's assignment,
// known by its hash key: it must not be taken for a newer one of ours.
func (v *View) expelForeign() {
	groups := group(v.Daemons, func(d *Daemon) ([2]uint64, bool) { return d.Held.HashKey, true })
	if len(groups) < 2 {
		return
	}
	best := largest(groups)
	for _, g := range groups {
		for _, d := range g {
			if g[0] != best[0] {
				d.Err = errForeign
			}
		}
	}
}

// group is the daemons that hold something, by key, in the order of the first
// of each.
func group[K comparable](daemons []*Daemon, key func(*Daemon) (K, bool)) (groups [][]*Daemon) {
	index := map[K]int{}
	for _, d := range daemons {
		if d.Err != nil || d.Held == nil {
			continue
		}
		k, ok := key(d)
		if !ok {
			continue
		}
		i, seen := index[k]
		if !seen {
			i = len(groups)
			index[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], d)
	}
	return groups
}

// largest is the first of the groups that have most daemons.
func largest(groups [][]*Daemon) []*Daemon {
	return slices.MaxFunc(groups, func(a, b []*Daemon) int { return len(a) - len(b) })
}

func names(daemons []*Daemon) string {
	all := make([]string, len(daemons))
	for i, d := range daemons {
		all[i] = d.Name
	}
	return strings.Join(all, ", ")
}

// each calls f for all daemons at the same time, within a bound.
func each(daemons []*Daemon, f func(*Daemon)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, 32)
	for _, d := range daemons {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			f(d)
		})
	}
	wg.Wait()
}
