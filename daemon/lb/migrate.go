package lb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/vip"
)

// A VIP that migrates (controller/migrate.go) has connections that its new scheme would
// not find. Their servers know them all, so that a balancer asks the agents, and enters
// what they name into its flow table, which it goes by first:
//
//	version with stage collect ─▶ ask every agent ─▶ enter ─▶ go by the version ─▶ say so
//
// Only then comes the version that relies on it. Entries last as long as any; what is
// silent for longer is asked for again meanwhile.

// migrator is a balancer's part in migrations.
type migrator struct {
	log   *slog.Logger
	tls   config.TLS
	table entries
	dial  func(endpoint string, t config.TLS) (fairleadv1connect.FairleadClient, error)

	mu    sync.Mutex
	a     *controller.Assignment // as it was decided, not as balancers go by it
	done  map[uint32]*collected  // by VIP id
	came  map[uint32]*arrival    // by VIP id
	again func()                 // packets are to go by something else
}

// entries is what is asked of the flow table (*lb.LB).
type entries interface {
	FlowWrite(records []lb.FlowRecord) (taken int, err error)
	FlowSweep(ctx context.Context) (lb.FlowStats, error)
	FlowSlot(key uint64) (slot int, ok bool, err error)
}

// collected is what became of a VIP's list.
type collected struct {
	version uint64 // of the migration
	at      time.Time
	entered uint64
	lacking string // why some may be missing; "": none is
}

const (
	hadTimeout = 10 * time.Second
	hadAtOnce  = 64
	// hadBrief is for how long a version waits for it, in which a VIP migrates or is new.
	hadBrief = 3 * time.Second
	// hadRetry is until an agent is asked again that did not answer, hadRenew until all
	// are: an entry lasts two hours.
	hadRetry = 2 * time.Second
	hadRenew = 30 * time.Minute
)

func newMigrator(log *slog.Logger, tls config.TLS, table entries) *migrator {
	return &migrator{log: log, tls: tls, table: table, dial: api.Dial, done: map[uint32]*collected{},
		came: map[uint32]*arrival{}, again: func() {}}
}

// follow makes a what is collected for.
func (g *migrator) follow(a *controller.Assignment) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.a = a
	migrates := map[uint32]bool{}
	for i := range a.VIPs {
		migrates[a.VIPs[i].ID] = a.VIPs[i].Migration != nil
	}
	for id := range g.done {
		if !migrates[id] {
			delete(g.done, id)
		}
	}
}

// asked is what became of v's list since its migration began, nil: it was not asked for.
// due is whether one is due at all.
func (g *migrator) asked(v *controller.VIP) (c *collected, due bool) {
	if !v.Collects() {
		return nil, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c = g.done[v.ID]; c != nil && c.version != v.Migration.Version {
		c = nil
	}
	return c, true
}

// owes: v's connections are to be asked for, for the first time, or again.
func (g *migrator) owes(v *controller.VIP) bool {
	c, due := g.asked(v)
	return due && (c == nil || c.lacking != "" || time.Since(c.at) > hadRenew)
}

// waits: packets go by this version of v only when its connections are known, or were asked
// for once at least. What is lacking later run asks for, and nobody waits.
func (g *migrator) waits(v *controller.VIP) bool {
	c, due := g.asked(v)
	return due && (c == nil || c.lacking != "" && v.Migration.Stage == controller.StageCollect)
}

// collect asks for those of a's VIPs that are due, all at once; err names what is missing.
func (g *migrator) collect(ctx context.Context, a *controller.Assignment, due func(*controller.VIP) bool) error {
	var all sync.WaitGroup
	errs := make([]error, len(a.VIPs)) // in their order
	for i := range a.VIPs {
		if v := &a.VIPs[i]; due(v) {
			all.Go(func() { errs[i] = g.collectOne(ctx, a, v) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

func (g *migrator) collectOne(ctx context.Context, a *controller.Assignment, v *controller.VIP) (err error) {
	c := &collected{version: v.Migration.Version, at: time.Now()}
	records, lacking := g.ask(ctx, a, v)
	lacking = errors.Join(lacking, g.enter(ctx, v, records))
	c.entered = uint64(len(records))
	if lacking != nil {
		c.lacking = strings.ReplaceAll(lacking.Error(), "\n", "; ")
		err = fmt.Errorf("vip %s: the connections that were opened under scheme %s are not all known: %w", v.Name, v.Migration.From.Scheme, lacking)
	} else {
		g.log.Info("entered the connections that servers have of a VIP that migrates", "vip", v.Name, "connections", len(records))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if was := g.done[v.ID]; was == nil || was.version != c.version || was.lacking != "" || lacking == nil {
		g.done[v.ID] = c // else another look was patient for longer
	}
	return err
}

// serving is v's servers with the slot in use, and where their agents are.
func serving(v *controller.VIP) map[string]*controller.Slot {
	all := map[string]*controller.Slot{}
	for i := range v.Slots {
		s := &v.Slots[i]
		if was := all[s.Server]; was == nil || was.State == controller.Resting {
			all[s.Server] = s
		}
	}
	return all
}

// ask asks v's agents what they have.
func (g *migrator) ask(ctx context.Context, a *controller.Assignment, v *controller.VIP) (records []lb.FlowRecord, err error) {
	servers := serving(v)
	names := make([]string, 0, len(servers))
	for name, s := range servers {
		if s.API != config.NoAgent {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var mu sync.Mutex
	askAll(ctx, names, hadAtOnce, hadTimeout, func(ctx context.Context, name string) {
		s := servers[name]
		opened, half, failed := g.askOne(ctx, s, v)
		mu.Lock()
		defer mu.Unlock()
		if failed != nil && s.State != controller.Resting { // one that was removed may be gone
			err = errors.Join(err, fmt.Errorf("%s: %s", name, api.ErrorText(failed)))
		}
		records = append(records, recordsOf(a, v, s.Number, lb.FlowConfirmed, opened)...)
		records = append(records, recordsOf(a, v, s.Number, lb.FlowNew, half)...)
	})
	return records, err
}

func (g *migrator) askOne(ctx context.Context, s *controller.Slot, v *controller.VIP) (opened, half []api.Connection, err error) {
	client, err := g.dial(s.API, g.tls)
	if err != nil {
		return nil, nil, err
	}
	r, err := client.GetHad(ctx, connect.NewRequest(&fairleadv1.GetHadRequest{VipId: v.ID}))
	switch {
	case err != nil:
		return nil, nil, err
	case v.Migration != nil && !v.Migration.From.Cookies() && r.Msg.AssignmentVersion < v.Migration.Version:
		return nil, nil, fmt.Errorf("it has version %d still, and stamps nothing before version %d", r.Msg.AssignmentVersion, v.Migration.Version)
	}
	if opened, err = api.Connections(r.Msg.Connections); err == nil {
		half, err = api.Connections(r.Msg.HalfOpen)
	}
	return opened, half, err
}

// recordsOf are the entries of what slot's server has. What is half-open there is new:
// where another server has the connection, it gives way.
func recordsOf(a *controller.Assignment, v *controller.VIP, slot uint16, state uint8, list []api.Connection) (records []lb.FlowRecord) {
	ports := v.Affinity != vip.Address && v.Fragments != vip.Addresses
	for _, c := range list {
		key := jet.Key(v.ID, hash.Flow(a.HashKey, c.Client, c.Port, ports), c.Client.Port(), c.Port)
		records = append(records, lb.FlowRecord{Key: key, VIP: v.ID, Slot: slot, State: state})
	}
	return records
}

// enter puts records into the flow table; an error says how many found no room.
func (g *migrator) enter(ctx context.Context, v *controller.VIP, records []lb.FlowRecord) error {
	if len(records) == 0 {
		return nil
	}
	slices.SortStableFunc(records, func(a, b lb.FlowRecord) int { return cmp.Compare(a.State, b.State) }) // FlowNew first
	taken, err := g.table.FlowWrite(records)
	if err != nil || taken == len(records) {
		return err
	}
	var missing, others int
	for _, r := range records {
		slot, ok, err := g.table.FlowSlot(r.Key)
		switch {
		case err != nil:
			return err
		case !ok:
			missing++
		case slot != int(r.Slot) && r.State == lb.FlowConfirmed:
			others++
		}
	}
	if others > 0 {
		// A server may have a socket still whose client has gone on elsewhere.
		g.log.Warn("servers name connections that this balancer has at other servers, and goes on having there", "vip", v.Name, "connections", others)
	}
	if missing == 0 {
		return nil
	}
	stats, err := g.table.FlowSweep(ctx)
	return errors.Join(err, fmt.Errorf("limits.flows: %d: %d of %d connections find no room beside %d that are there; raise it to %d, and restart the balancer",
		stats.Limit, missing, len(records), stats.Used, 4*(stats.Used+uint64(missing))))
}

// run asks again for what is owed, until ctx ends.
func (g *migrator) run(ctx context.Context) error {
	tick := time.NewTicker(hadRetry)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		g.mu.Lock()
		a := g.a
		g.mu.Unlock()
		if a == nil {
			continue
		}
		if g.round(ctx, a) {
			g.again()
		}
		err := g.collect(ctx, a, g.owes)
		if err != nil && ctx.Err() == nil && told != err.Error() {
			told = err.Error()
			g.log.Warn("connections of a VIP that migrates are asked for again", "error", err)
		} else if err == nil {
			told = ""
		}
	}
}

// describe fills in v.
func (g *migrator) describe(v *fairleadv1.VIP) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.done[v.Id]; c != nil && v.Migration != nil {
		v.Migration.Entered, v.Migration.Lacking = c.entered, c.lacking
	}
	if at := g.came[v.Id]; at != nil && at.left && at.entered > 0 && v.Migration == nil {
		v.Migration = &fairleadv1.Migration{Stage: stageCame, StageSinceUnixMs: at.since.UnixMilli(), Entered: uint64(at.entered)}
	}
}

// lacks names VIPs of which connections may be missing.
func (g *migrator) lacks(a *controller.Assignment) (why []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !v.Collects() {
			continue
		}
		if c := g.done[v.ID]; c == nil {
			why = append(why, fmt.Sprintf("VIP %s migrates: its servers have not been asked yet which connections they have", v.Name))
		} else if c.lacking != "" {
			why = append(why, fmt.Sprintf("VIP %s migrates: connections of before are not all known: %s", v.Name, c.lacking))
		}
	}
	return why
}
