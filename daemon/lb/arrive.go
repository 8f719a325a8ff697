package lb

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// A VIP that is new may have connections: its servers ran before there was a balancer, or
// behind another. They are as a migration's: the agents list them when they get the VIP, and
// balancers enter them before they take its packets. To a scheme with cookies nothing is
// missed, since agents stamp what is opened from then on, by whatever way it comes. Any
// other places by its hash what it does not know, and asks often while packets may come by
// the way before (arriving).

const (
	// arriving is for how long agents are asked every hadRetry what else they have, where
	// no cookie says it: the time to lead packets here.
	arriving = time.Minute
	// arrived is when nothing is known any more of what has been silent since: entries are
	// gone then, too.
	arrived = 3 * time.Hour
)

// stageCame is the stage of a VIP that came, in status.
const stageCame = "came"

// arrival is a VIP whose connections of before may live.
type arrival struct {
	since   time.Time
	looked  time.Time // when they were asked for last
	entered int
	left    bool // some live, or are not known
}

// isNew: v came with this version.
func isNew(a *controller.Assignment, v *controller.VIP) bool {
	if a.Version == 1 {
		return true
	}
	for i := range v.Slots {
		if v.Slots[i].Version != a.Version {
			return false
		}
	}
	return len(v.Slots) > 0
}

// arrive enters what servers have of VIPs that are new here; has says which packets go by
// already, and whether entries count more than cookies there: before this process has begun,
// as one before left it; later, as a migration that is over now had it. What it returns is a
// as packets are to go by it.
func (g *migrator) arrive(ctx context.Context, a *controller.Assignment, begun bool, has func(vip uint32) (here, first bool)) *controller.Assignment {
	own, there := *a, map[uint32]bool{}
	own.VIPs = append([]controller.VIP(nil), a.VIPs...)
	came := map[*controller.VIP]*arrival{}
	var looks sync.WaitGroup // at once: an agent that hangs holds all up once, not for each
	brief, cancel := context.WithTimeout(ctx, hadBrief)
	defer cancel()
	for i := range own.VIPs {
		v := &own.VIPs[i]
		there[v.ID] = true
		if v.Protocol != vip.TCP || v.Chains() || v.TierBits() > 0 || v.Migration != nil {
			continue
		}
		here, first := has(v.ID)
		g.mu.Lock()
		at := g.came[v.ID]
		if at == nil && (here && first && !begun || !here && isNew(a, v)) {
			at = &arrival{since: time.Now(), left: true}
			g.came[v.ID] = at
		}
		g.mu.Unlock()
		if at == nil {
			continue
		}
		came[v] = at
		if _, entered := g.stands(at); !here && entered == 0 {
			looks.Go(func() { g.look(brief, a, v, at) })
		}
	}
	looks.Wait()
	for v, at := range came {
		if left, _ := g.stands(at); v.Cookies() && left {
			v.Migration = &controller.Migration{From: vip.Settings{Protocol: v.Protocol}, Stage: controller.StageBoth, Version: a.Version}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.came {
		if !there[id] {
			delete(g.came, id)
		}
	}
	return &own
}

// stands is how it stands with a VIP that came.
func (g *migrator) stands(at *arrival) (left bool, entered int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return at.left, at.entered
}

// look asks what v's servers have, and enters it.
func (g *migrator) look(ctx context.Context, a *controller.Assignment, v *controller.VIP, at *arrival) {
	ctx, cancel := context.WithTimeout(ctx, hadBrief)
	defer cancel()
	records, err := g.ask(ctx, a, v)
	err = errors.Join(err, g.enter(ctx, v, records)) // what is known, whoever else is silent
	if err != nil {
		g.log.Debug("connections of before a new VIP are not all known", "vip", v.Name, "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(records) > at.entered {
		g.log.Info("entered connections that servers had before this VIP came", "vip", v.Name, "connections", len(records))
	}
	at.entered = max(at.entered, len(records))
	at.left = time.Since(at.since) < arrived && (err != nil || len(records) > 0)
}

// round asks again what is left of VIPs that came; changed: some has no connection of
// before any more.
func (g *migrator) round(ctx context.Context, a *controller.Assignment) (changed bool) {
	for i := range a.VIPs {
		v := &a.VIPs[i]
		g.mu.Lock()
		at := g.came[v.ID]
		due := at != nil && at.left && (time.Since(at.since) < arriving || v.Cookies() && time.Since(at.looked) > arriving/2)
		if due {
			at.looked = time.Now()
		}
		g.mu.Unlock()
		if !due {
			continue
		}
		g.look(ctx, a, v, at)
		g.mu.Lock()
		// Not at once: what is on its way here was opened before, too.
		if !at.left && time.Since(at.since) < arriving {
			at.left = true
		}
		changed = changed || !at.left
		g.mu.Unlock()
	}
	return changed
}
