package rollout

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

// Most changes need nothing of a daemon but that it goes by the store's newest version,
// which it says under its lease. A drain is such a one: nobody is asked then, and
// packets follow the sooner. What that cannot do, for whatever reason, is done by asking
// everybody (Look):
//
//   - somebody is away, behind, or goes by something else, or a change stopped half way;
//   - the plan needs counts of connections, or would be another with them;
//   - agents have to be waited for before balancers (controller.AgentsMayLag).
//
// A lease outlives its daemon by some seconds. Who dies in that time is waited for until
// it is over, and then is one that does not answer.

// unasked is why agents' counts are not known.
const unasked = "it was not asked"

// planBelieving plans by daemons' reports alone; nil: that cannot be done.
func (c *Coordinator) planBelieving(ctx context.Context, o Options, a aim) *Change {
	needsNone := func(op controller.Op) bool {
		return op.Kind == controller.Drain || op.Kind == controller.Undrain || op.Kind == controller.Weight
	}
	if len(a.ops) == 0 || len(o.Without) > 0 || slices.ContainsFunc(a.ops, func(op controller.Op) bool { return !needsNone(op) }) {
		return nil
	}
	v := newView()
	if c.agreed(ctx, v) != nil || v.agreed == nil || v.head.Turn < int(kinds) || v.head.Open || hasBuckets(v.agreed) || !c.believe(v) {
		return nil
	}
	ch, err := c.planFrom(ctx, v, o, a)
	if err != nil || len(ch.Silent) > 0 || len(ch.Steps) > 1 {
		return nil
	}
	for _, step := range ch.Steps {
		if controller.AgentsMayLag(v.agreed, step) != nil {
			return nil
		}
	}
	ch.believed = true
	return ch
}

// believe fills v in with what daemons' reports say; false: not all of them go by the
// store's newest version.
func (c *Coordinator) believe(v *View) bool {
	cfg, err := c.config(v)
	if err != nil {
		return false
	}
	v.cfg, v.Base = cfg, v.agreed
	for _, s := range cfg.Daemons() {
		v.Daemons = append(v.Daemons, &Daemon{Name: s.Name, API: s.API, Kind: kindOf[s.Role]})
	}
	v.Daemons = append(v.Daemons, v.unknown(v.agreed, nil)...)
	sum := v.agreed.Digest()
	digest := hex.EncodeToString(sum[:])
	for _, d := range v.Daemons {
		r, lives := v.reports[d.Name]
		if !lives || r.Kind != int(d.Kind) || r.Version != v.agreed.Version || r.Digest != digest {
			return false
		}
		d.Held, d.Last = v.agreed, v.agreed.Version
		if d.Kind == Host {
			v.Live.Silent[d.Name] = unasked
		}
	}
	slices.SortStableFunc(v.Daemons, func(a, b *Daemon) int { return int(a.Kind - b.Kind) })
	return true
}

// mayMiss: d, which went by the version before step, may stay there.
func (ch *Change) mayMiss(d *Daemon, step *controller.Assignment) bool {
	return len(mayLag(ch.view, []*Daemon{d}, ch.view.agreed, []*controller.Assignment{step})) == 0
}

// Memo is what was worked out for earlier changes and holds for the next, for a process
// that makes many. Safe for use by several goroutines; nil remembers nothing.
type Memo struct {
	mu   sync.Mutex
	boot *config.Config
	text []byte
	cfg  *config.Config
}

// desired is boot.Desired, which takes as long as all the rest of a small change.
func (m *Memo) desired(boot *config.Config, name string, text []byte) (*config.Config, error) {
	if m == nil {
		return boot.Desired(name, text)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boot == boot && bytes.Equal(m.text, text) {
		return m.cfg, nil
	}
	cfg, err := boot.Desired(name, text)
	if err == nil {
		m.boot, m.text, m.cfg = boot, text, cfg
	}
	return cfg, err
}
