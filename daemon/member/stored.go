package member

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// A member goes by the version whose turn is its kind's
// (ledger.Head), and says under its lease what it goes by:
//
//	Heads ─▶ take: fetch, compare digests, install ─▶ report ─▶ Say, under the lease
//
// Where the store is gone, for minutes or for good, it goes on by what it has.
// What the store has is never taken over where it is older than that, or another
// version of the same number.
type stored struct {
	m      *Member
	store  store.Store
	ledger *ledger.Ledger
	kind   int
	say    chan struct{} // the report has changed
	// waiting: it has nothing to go by yet.
	waiting atomic.Bool
	raced   bool // somebody else fixed the shared clock while this daemon did

	mu      sync.Mutex
	refused uint64 // the version that could not be put in force, and why
	failure string
	tries   uint64
	silent  string // why the store does not answer, "": it does
	head    ledger.Head
	away    error // it did not answer when this daemon started
	at      []string
	differs string         // how the file names the store otherwise than all machines do
	boot    *config.Config // what the store was opened by
	anew    func()         // has follow look at the head once more; nil: it does not follow yet
}

const (
	// unasked is why the store is silent at first.
	unasked = "the store was not asked yet"
	// leaseTime is how long a daemon that says nothing counts as alive.
	leaseTime = 5 * time.Second
	storeTime = 3 * time.Second
	storeRest = time.Second
	// longestRest is well below what a change waits for a daemon.
	longestRest = 5 * time.Second
)

var kindOf = map[config.Role]rollout.Kind{config.RoleHost: rollout.Host, config.RoleBalancer: rollout.Balancer, config.RoleSwitch: rollout.Switch}

// openStore opens the store that the file of this machine names.
func (m *Member) openStore(boot *config.Config) error {
	s, l, err := m.Options.OpenStore(boot, m.Log)
	if err != nil {
		return err
	}
	m.stored = &stored{m: m, store: s, ledger: l, kind: int(kindOf[m.role.Is]), say: make(chan struct{}, 1), silent: unasked, at: boot.StoreEndpoints(), boot: boot}
	return nil
}

// reach has the store asked at the members that boot, the machine's file, and cfg have.
func (s *stored) reach(boot, cfg *config.Config) {
	at, differs := boot.Members(cfg)
	s.mu.Lock()
	news, moved := differs != s.differs, !slices.Equal(at, s.at)
	s.at, s.differs = at, differs
	s.mu.Unlock()
	if moved {
		urls := make([]string, len(at))
		for i, e := range at {
			urls[i] = store.URL(e)
		}
		s.store.Members(urls)
	}
	if news && differs != "" {
		s.m.Log.Warn(differs)
	}
}

// where the store is asked, for logs.
func (s *stored) where() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// newest is what the store has for this daemon; nil: it has nothing yet. have is
// what is on disk.
func (s *stored) newest(ctx context.Context, have *controller.Assignment) (*controller.Assignment, error) {
	if s.away != nil { // a moment ago
		return nil, s.away
	}
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	head, err := s.ledger.Head(ctx)
	if err != nil || head.Of(s.kind) == 0 {
		return nil, err
	}
	return s.ledger.Read(ctx, head.Of(s.kind), have)
}

// await waits until the store has something for a daemon that has nothing.
func (s *stored) await(ctx context.Context) (*controller.Assignment, error) {
	s.m.Log.Warn("there is no assignment on disk: "+rollout.Waiting, "store", s.where())
	s.m.Enter(daemon.Phase(rollout.Waiting))
	s.waiting.Store(true)
	defer func() {
		s.waiting.Store(false)
		s.m.Enter(daemon.Applying)
	}()
	for {
		for head, err := range s.ledger.Heads(ctx) {
			if err == nil && head.Of(s.kind) > 0 {
				var a *controller.Assignment
				if a, err = s.ledger.Read(ctx, head.Of(s.kind), nil); err == nil {
					return a, nil
				}
			}
			if errors.Is(err, ledger.ErrForeign) {
				return nil, err
			}
			if err != nil {
				if ctx.Err() == nil {
					s.m.Log.Warn("the store's assignment cannot be read yet", "error", err)
				}
				break // and begin anew: the head may not move again
			}
		}
		if !daemon.Sleep(ctx, storeRest) {
			return nil, ctx.Err()
		}
	}
}

// awaits is what a daemon without a first version waits for.
func (m *Member) awaits() string {
	s := m.stored
	if s == nil || m.force.Load() != nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := strings.Join(s.at, ", ")
	switch {
	case s.silent == unasked || s.silent == "" && !s.waiting.Load():
		return ""
	case s.silent == "" && s.boot.Implied():
		return fmt.Sprintf("the store (%s) answers, and has none yet; its controller makes one by itself within seconds", at)
	case s.silent == "":
		return fmt.Sprintf("the store (%s) answers, and has none yet", at)
	}
	remedy := "see to the cluster that store.etcd names"
	switch {
	case s.boot.Implied():
		remedy = "start `fairlead lb` (or `switch`), beside which it runs"
	case len(s.boot.Store.Etcd) == 0:
		var names []string
		for _, c := range s.boot.Controllers {
			names = append(names, c.Name)
		}
		remedy = "start `fairlead controller` on " + strings.Join(names, ", ")
	}
	return fmt.Sprintf("the store (%s) does not answer (%s): %s, or put right in %s where it is", at, s.silent, remedy, s.boot.File())
}

// follow puts each version in force when it is this daemon's turn.
func (s *stored) follow(ctx context.Context) error {
	rest := storeRest
	for {
		watching, end := context.WithCancel(ctx)
		s.mu.Lock()
		s.anew = end
		s.mu.Unlock()
		for head, err := range s.ledger.Heads(watching) {
			if errors.Is(err, ledger.ErrForeign) || errors.Is(err, ledger.ErrDamaged) {
				s.took(0, err)
			}
			if err != nil {
				break // that the store does not answer is said by live
			}
			s.mu.Lock()
			s.head = head
			s.mu.Unlock()
			// Packets first: they do not go by the text.
			if err = s.take(ctx, head); ctx.Err() == nil {
				s.took(head.Of(s.kind), err)
			}
			if err = errors.Join(err, s.m.followDesired(ctx, s.ledger, head.Desired)); err != nil {
				break
			}
			rest = storeRest
		}
		end()
		if !daemon.Sleep(ctx, rest) {
			return nil
		}
		rest = min(2*rest, longestRest) // each try is a write to the store
	}
}

// retry has what the store wants looked at again.
func (s *stored) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.anew != nil {
		s.anew()
	}
}

// took remembers what became of a version, and says so if that is news.
func (s *stored) took(version uint64, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	news := text != s.failure
	s.failure, s.refused = text, 0
	if err != nil {
		s.refused = version
		s.tries++
	}
	s.mu.Unlock()
	daemon.Poke(s.say)
	if news && err != nil && !errors.Is(err, context.Canceled) {
		s.m.Log.Error("what the store has is not in force here; what was in force goes on", "version", version, "error", err)
	}
}

// take puts the version in force whose turn it is.
func (s *stored) take(ctx context.Context, head ledger.Head) error {
	m, version := s.m, head.Of(s.kind)
	force := m.force.Load() // nobody else replaces it
	switch {
	case version == 0:
		return nil
	case version < force.Version:
		return fmt.Errorf("the store has version %d, and this daemon goes by %d, which the next change brings into the store (fairlead apply)", version, force.Version)
	}
	if version != force.Version {
		daemon.Awake()
	}
	a, err := s.ledger.Of(ctx, head, s.kind, force.Assignment)
	if err != nil {
		return err
	}
	if version == force.Version {
		if a == force.Assignment || bytes.Equal(m.digest(a), force.digest) {
			return nil
		}
		return fmt.Errorf("the store has another version %d than this daemon goes by", version)
	}
	if a.HashKey != force.HashKey {
		return errors.New("the store has an assignment of another deployment: remove this daemon's state folder, or correct the file")
	}
	if err := controller.AcceptValid(force.Assignment, a, force.Version, version != force.Version+1); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if head.Desired != m.desired.now().Is {
		m.settings.Load().expect() // its text is the next thing that is followed
	}
	if err := m.install(a); err != nil {
		return err
	}
	m.Log.Info("assignment in force", "version", version, "from", "store", "vips", len(a.VIPs))
	return nil
}

// live keeps the lease, and this daemon's report under it.
func (s *stored) live(ctx context.Context) error {
	for {
		err := s.lease(ctx)
		if ctx.Err() != nil {
			return s.store.Close()
		}
		s.mu.Lock()
		first := s.silent == ""
		s.silent = err.Error()
		s.mu.Unlock()
		if first {
			s.m.Log.Error("the store does not answer; what is in force goes on", "error", err)
		}
		if !daemon.Sleep(ctx, storeRest) {
			return s.store.Close()
		}
	}
}

// lease holds one for as long as the store answers, and says why no longer.
func (s *stored) lease(ctx context.Context) error {
	return s.hold(ctx, s.m.Name, s.report)
}

// hold is lease of a daemon called name that says what report does.
func (s *stored) hold(ctx context.Context, name string, report func() ledger.Report) error {
	return store.Hold(ctx, s.store, leaseTime, storeTime, func(ctx context.Context, lease store.Lease) error {
		return s.saying(ctx, lease, name, report)
	})
}

// saying says what report does, whenever that is news, until ctx ends.
func (s *stored) saying(ctx context.Context, lease store.Lease, name string, report func() ledger.Report) (err error) {
	var said *ledger.Report
	var rev int64
	listening, stop := context.WithCancel(ctx)
	others := &overheard{poke: make(chan struct{}, 1)}
	defer func() {
		stop()
		others.work.Wait()
	}()
	for {
		// What is said already is not said again: each time is a write to the store, in
		// the way of what a change waits for.
		if r := report(); said == nil || r != *said {
			saying, cancel := context.WithTimeout(ctx, storeTime)
			rev, err = s.ledger.Say(saying, lease, name, r)
			cancel()
			if err != nil {
				return err
			}
			said = &r
			others.listen(listening, s.ledger, name, rev)
		}
		s.mu.Lock()
		back := s.silent != ""
		s.silent = ""
		s.mu.Unlock()
		if back {
			s.m.Log.Info("the store answers", "store", s.where())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.say:
		case <-others.poke:
			if others.after(rev) {
				others.tell(s.m.Log, name, rev)
				if !daemon.Sleep(ctx, storeRest) { // whoever does so again and again has no write of ours for each
					return ctx.Err()
				}
				said = nil
			}
		}
	}
}

func (s *stored) report() ledger.Report {
	r := ledger.Report{Kind: s.kind}
	if force := s.m.force.Load(); force != nil {
		r.Version, r.Digest = force.Version, hex.EncodeToString(force.digest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Refused, r.Error, r.Tries = s.refused, s.failure, s.tries
	if is, seen := s.m.desired.now().Is, s.head.Deployment != ""; seen && is != s.head.Desired && is.Version >= s.head.Desired.Version {
		r.Ahead = is.Version
	}
	return r
}

func (s *stored) emit(emit daemon.Emitter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	up := 0.0
	if s.silent == "" {
		up = 1
	}
	emit(mStoreUp, up)
	emit(mStoreHead, float64(s.head.Version))
}

// warnings are what people should know.
func (s *stored) warnings() (warnings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent != "" {
		warnings = append(warnings, "what is in force goes on, and changes wait: "+s.silent)
	}
	if s.failure != "" {
		warnings = append(warnings, "what the store has is not in force here: "+s.failure)
	}
	if s.differs != "" {
		warnings = append(warnings, s.differs)
	}
	return warnings
}
