package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/kept"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// The file on the machine is the bootstrap: secret, tls and how
// to come to the store. What the deployment is, this daemon's own entry included, is
// the desired state in the store:
//
//	at the start: the store's text, else the one on disk, else the file, else (the file
//	              has nothing of the deployment) wait
//	afterwards:   Heads ─▶ follow: fetch, parse, go by it, keep on disk
//
// A text that this daemon cannot use (it is not in it, or does not parse by this build)
// changes nothing here.
const desiredName = kept.DesiredName

// text is a desired state of the store's; the zero text is none.
type text struct {
	Is   ledger.Desired `json:"desired"`
	Text string         `json:"text"`
}

// desired is which text this daemon goes by.
type desired struct {
	mu sync.Mutex
	in text
	// failure is why the store's newest, which is unused, is not in force; "": it is.
	failure string
	unused  ledger.Desired
}

// read takes what the file says, and what the store wants.
func (m *Member) read() error {
	boot, err := config.Load(m.Options.File)
	if err != nil {
		return err
	}
	cfg, self, err := m.begin(boot)
	if err != nil {
		return err
	}
	m.Config, m.Self = cfg, self
	m.stored.reach(boot, cfg)
	m.Name, m.API, m.TLS, m.Metrics = m.Self.Name, []string{m.Self.API}, m.Config.TLS, m.Self.Metrics
	m.Log = m.Log.With("name", m.Name)
	m.Says = []any{"api", m.Self.API, "metrics", m.Metrics}
	m.settings.Store(&settings{boot: boot, cfg: m.Config, from: m.source()})
	return m.peers.set(m.Config, m.Name)
}

// begin is what this daemon begins with.
func (m *Member) begin(boot *config.Config) (cfg *config.Config, self config.Self, err error) {
	self, missing := boot.Find(m.role.Is, m.Options.Name)
	if missing != nil && len(boot.StoreEndpoints()) == 0 {
		return boot, self, missing
	}
	names := []string{self.Name}
	if missing != nil {
		names = called(m.Options.Name)
	}
	if err := m.openStore(boot); err != nil {
		return nil, self, err
	}
	kept := m.kept(names)
	if cfg, err := boot.Desired(config.OfVersion(kept.Is.Version), []byte(kept.Text)); err == nil {
		m.stored.reach(boot, cfg) // the file's members may be away
	}
	newest, err := m.stored.text(m.life)
	if err != nil {
		m.Log.Warn("the store does not say what is wanted; going on by what is here", "error", err)
	}
	for _, t := range []text{newest, kept} {
		if t.Is.Version == 0 || t.Is.Version < kept.Is.Version {
			continue
		}
		if cfg, self, err := m.by(boot, t); err == nil {
			m.desired.in = t
			return cfg, self, nil
		} else {
			m.desired.refuse(t.Is, err)
			m.Log.Error("what the store wants cannot be used here", "version", t.Is.Version, "error", err)
		}
	}
	if missing == nil || !boot.Bootstrap() { // a file that has the deployment, and not this machine, is a slip
		return boot, self, missing
	}
	return m.await(boot, names[0], missing)
}

// called are the names of this machine that its entry may have.
func called(name string) []string {
	if name != "" {
		return []string{name}
	}
	host, err := os.Hostname()
	if err != nil {
		return []string{""}
	}
	short, _, _ := strings.Cut(host, ".")
	return []string{short, host}
}

// kept is the text on disk; the zero text: there is none that is whole. What is wrong
// with it is said when the folder is this daemon's own.
func (m *Member) kept(names []string) (t text) {
	for _, name := range names {
		data, err := kept.Read(m.StateDir, name, desiredName)
		if err == nil && data != nil && json.Unmarshal(data, &t) == nil {
			return t
		}
	}
	return text{}
}

// by is what a text wants, on this machine.
func (m *Member) by(boot *config.Config, t text) (*config.Config, config.Self, error) {
	cfg, err := boot.Desired(config.OfVersion(t.Is.Version), []byte(t.Text))
	if err != nil {
		return nil, config.Self{}, err
	}
	name := m.Name
	if name == "" {
		name = m.Options.Name
	}
	self, err := cfg.Find(m.role.Is, name)
	return cfg, self, err
}

// await waits for a text that has this machine, named name, in it, and says meanwhile
// in the store that it is there: nobody else could tell.
func (m *Member) await(boot *config.Config, name string, missing error) (*config.Config, config.Self, error) {
	m.Log.Warn("neither the file nor the store has this machine: waiting for a `fairlead apply` that brings it", "error", missing, "store", boot.StoreEndpoints())
	ctx, end := context.WithCancel(m.life)
	var wg sync.WaitGroup
	var why atomic.Pointer[string] // nil: there is no text
	wg.Go(func() { m.stored.waits(ctx, name, &why) })
	defer func() { m.stored.away = nil }() // it answered, or this ends
	defer wg.Wait()
	defer end()
	away := false
	for {
		for head, err := range m.stored.ledger.Heads(ctx) {
			if errors.Is(err, ledger.ErrForeign) {
				return nil, config.Self{}, err
			}
			if err == nil {
				away = false
			} else if !away && ctx.Err() == nil {
				away = true
				m.Log.Warn("the store does not answer; waiting for it", "store", boot.StoreEndpoints(), "error", err)
			}
			if err != nil {
				break
			}
			data, err := m.stored.ledger.Text(ctx, head.Desired)
			if err != nil {
				break
			}
			if data == nil {
				continue
			}
			t := text{head.Desired, string(data)}
			cfg, self, err := m.by(boot, t)
			if err == nil {
				m.desired.in, m.desired.failure = t, ""
				return cfg, self, nil
			}
			if text := OneLine(err); why.Load() == nil || *why.Load() != text {
				why.Store(&text)
				daemon.Poke(m.stored.say)
				m.Log.Warn("still waiting: the store's configuration cannot be used here", "version", t.Is.Version, "error", err)
			}
		}
		if !daemon.Sleep(ctx, storeRest) {
			return nil, config.Self{}, ctx.Err()
		}
	}
}

// waits says under a lease that a daemon called name is there, and has nothing: why is what
// keeps it from what the store wants.
func (s *stored) waits(ctx context.Context, name string, why *atomic.Pointer[string]) {
	for {
		_ = s.hold(ctx, name, func() ledger.Report {
			r := ledger.Report{Kind: s.kind, Waits: true}
			if text := why.Load(); text != nil {
				r.Error = *text
			}
			return r
		})
		if !daemon.Sleep(ctx, storeRest) {
			return
		}
	}
}

// text is what the store wants now.
func (s *stored) text(ctx context.Context) (text, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	head, err := s.ledger.Head(ctx)
	if err != nil {
		s.away = err
		return text{}, err
	}
	data, err := s.ledger.Text(ctx, head.Desired)
	return text{head.Desired, string(data)}, err
}

// keepDesired has the text on disk, for a start without the store.
func (m *Member) keepDesired() {
	t := m.desired.now()
	if err := m.State.Parse(desiredName, "", func(data []byte) error { return json.Unmarshal(data, &text{}) }); err != nil {
		m.Log.Warn("what the store wanted when this daemon ran last is not known", "error", err)
	}
	if t.Is.Version == 0 {
		return
	}
	data, err := json.Marshal(t)
	if err == nil {
		err = m.State.Keep(desiredName, data)
	}
	if err != nil {
		m.Log.Warn("what the store wants is not on disk: a restart without the store begins from what was wanted before", "version", t.Is.Version, "error", err)
	}
}

// followDesired goes by the text that the head names. An error: it could not be had or
// used as things are here, and is to be tried again.
func (m *Member) followDesired(parent context.Context, l *ledger.Ledger, is ledger.Desired) error {
	switch now := m.desired.now().Is; {
	case is == now || is.Version == 0 || is == m.desired.refused():
		return nil
	case is.Version <= now.Version:
		m.refuseDesired(is, fmt.Errorf("it is of version %d, and this daemon goes by that of version %d: the store was put back from an older copy; the next `fairlead apply` brings a newer one", is.Version, now.Version))
		return nil
	}
	ctx, cancel := context.WithTimeout(parent, storeTime)
	defer cancel()
	data, err := l.Text(ctx, is)
	if errors.Is(err, ledger.ErrDamaged) {
		m.refuseDesired(is, err)
		return nil
	}
	if err != nil {
		if parent.Err() == nil {
			m.lackDesired(is, err)
		}
		return err
	}
	m.going.Lock()
	defer m.going.Unlock()
	t := text{is, string(data)}
	boot := m.settings.Load().boot
	cfg, _, err := m.by(boot, t)
	if err != nil {
		m.refuseDesired(is, err)
		return nil
	}
	if err := m.peers.set(cfg, m.Name); err != nil { // files of this machine's, which may come
		m.lackDesired(is, err)
		return err
	}
	m.desired.take(t)
	m.keepDesired()
	m.goBy(boot, cfg)
	m.Log.Info("configuration taken over", "version", is.Version, "entry", m.Name)
	return nil
}

func (m *Member) refuseDesired(is ledger.Desired, err error) {
	m.desired.refuse(is, err)
	m.Log.Error("what the store wants is not in force here; what was in force goes on", "version", is.Version, "error", err)
}

// lackDesired is refuseDesired of what is tried again.
func (m *Member) lackDesired(is ledger.Desired, err error) {
	if m.desired.lack(is, err) {
		m.Log.Error("what the store wants is not in force here yet; what was in force goes on", "version", is.Version, "error", err)
	}
}

func (d *desired) now() text {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.in
}

func (d *desired) take(t text) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.in, d.failure, d.unused = t, "", ledger.Desired{}
}

func (d *desired) refused() ledger.Desired {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unused
}

func (d *desired) refuse(is ledger.Desired, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unused, d.failure = is, fmt.Sprintf("the configuration of version %d cannot be used here, and what was wanted before goes on: %s", is.Version, OneLine(err))
}

// lack notes why a text is not in force that is tried again, and says whether that is news.
func (d *desired) lack(is ledger.Desired, err error) (news bool) {
	text := fmt.Sprintf("the configuration of version %d is not in force here yet, and is tried again: %s", is.Version, OneLine(err))
	d.mu.Lock()
	defer d.mu.Unlock()
	news = d.failure != text
	d.failure = text
	return news
}

// again forgets what was refused, and says whether anything was.
func (d *desired) again() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.unused
	d.unused = ledger.Desired{}
	return was != ledger.Desired{}
}

// warnings are what people should know.
func (d *desired) warnings() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == "" {
		return nil
	}
	return []string{d.failure}
}

// source is whence comes what this daemon goes by, for messages.
func (m *Member) source() string {
	if v := m.desired.now().Is.Version; v > 0 {
		return config.OfVersion(v)
	}
	return m.Options.File
}

// goBy goes by cfg: peers and the fabric at once, and a warning for what is fixed
// while the programs are loaded.
func (m *Member) goBy(boot, cfg *config.Config) {
	if m.opened.Peers != nil {
		m.opened.Peers.Follow(m.peers.list())
	}
	m.stored.reach(boot, cfg)
	changed, refused := m.readFabric(cfg)
	m.compareFile(boot, cfg, changed, refused)
	m.AnnounceSoon()
}
