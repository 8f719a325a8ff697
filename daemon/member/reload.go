package member

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/topology"
)

// reload reads the configuration again (SIGHUP): the file, and with it what the store
// wants. Peers, their certificates and the fabric change at once; what is fixed while
// the programs are loaded is named; what is shared is left to `fairlead apply`, which
// changes all daemons together.
func (m *Member) reload() (r daemon.Reloaded, err error) {
	m.going.Lock()
	defer m.going.Unlock()
	boot, err := config.Load(m.Options.File)
	if err != nil {
		return r, err
	}
	if m.desired.again() { // it may be usable by what the file says now
		defer m.stored.retry()
	}
	cfg := boot
	if t := m.desired.now(); t.Is.Version > 0 {
		cfg, _, err = m.by(boot, t)
	} else {
		_, err = cfg.Find(m.role.Is, m.Name)
	}
	if err != nil {
		return r, err
	}
	before := m.peers.list()
	if err := m.peers.set(cfg, m.Name); err != nil {
		return r, err
	}
	m.goBy(boot, cfg)
	if text := m.compareText(boot); text != "" {
		r.Notes = []string{text}
	}
	r.Changed = append(peersBetween(before, m.peers.list()), m.settings.Load().changed...)
	r.Restart, r.Refused = m.settings.Load().restart, m.settings.Load().refused
	return r, nil
}

// peersBetween is who came, moved and left between two lists of peers.
func peersBetween(was, is []*Peer) (lines []string) {
	at := map[string]string{}
	for _, p := range was {
		at[p.Name] = p.api
	}
	for _, p := range is {
		switch api, there := at[p.Name]; {
		case !there:
			lines = append(lines, fmt.Sprintf("peer %s, at %s", p.Name, p.api))
		case api != p.api:
			lines = append(lines, fmt.Sprintf("peer %s is at %s, was at %s", p.Name, p.api, api))
		}
		delete(at, p.Name)
	}
	for _, p := range was {
		if _, left := at[p.Name]; left {
			lines = append(lines, fmt.Sprintf("peer %s has left", p.Name))
		}
	}
	return lines
}

// readFabric has the plane read the fabric's file again, and says why that was not
// possible; changed is what there is anew. A file of another name needs a restart.
func (m *Member) readFabric(cfg *config.Config) (changed, refused []string) {
	take := m.opened.Fabric
	if take == nil || cfg.Fabric == "" || cfg.Fabric != m.Config.Fabric {
		return nil, nil
	}
	fabric, err := topology.Read(cfg.Fabric)
	differs := false
	if err == nil {
		differs, err = take(fabric)
	}
	switch {
	case err != nil:
		m.Log.Error("fabric not read again; what was read before stays", "file", cfg.Fabric, "error", err)
		refused = append(refused, fmt.Sprintf("%s is not in force, what was read before is: %s; put it right and reload (SIGHUP)", cfg.Fabric, OneLine(err)))
	case differs:
		m.Log.Info("fabric read again", "file", cfg.Fabric)
		changed = append(changed, cfg.Fabric)
	}
	return changed, refused
}

// OneLine is an error for a warning: a file may have several problems.
func OneLine(err error) string {
	first, _, more := strings.Cut(err.Error(), "\n")
	if more {
		first += "; and more"
	}
	return first
}

// compareFile keeps cfg and warns of everything in it that is not in force;
// refused is what is known of that already, and changed what has come into force.
func (m *Member) compareFile(boot, cfg *config.Config, changed, refused []string) {
	set := &settings{boot: boot, cfg: cfg, from: m.source(), changed: changed, refused: refused, ignored: m.stillIgnored(m.settings.Load(), boot)}
	warn := func(text string) {
		set.restart = append(set.restart, text)
		m.Log.Warn(text)
	}
	if now, err := cfg.Find(m.role.Is, m.Name); err == nil {
		is := fixed(m.role, cfg, now)
		for i, was := range fixed(m.role, m.Config, m.Self) {
			if !reflect.DeepEqual(was, is[i]) {
				warn(daemon.Restarts(was.Name, set.from))
			}
		}
	}
	if m.stored != nil {
		for _, text := range daemon.Bootstrapped(m.stored.boot, boot) {
			warn(text)
		}
	}
	defer m.settings.Store(set)
	a := m.force.Load().Assignment
	if m.desired.now().Is.Version > 0 {
		set.patience = time.Now().Add(seriesTime) // the versions that bring it are on their way
	} else if text := set.difference(a); text != "" {
		m.Log.Warn(text)
	}
}

// seriesTime is how long a series of versions may take before a daemon says that it
// does not go by all that is wanted.
const seriesTime = 30 * time.Second

// expect has no news made of a difference for a while.
func (s *settings) expect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience = time.Now().Add(seriesTime)
}

// patient: it is no news yet that not all of cfg is in force.
func (s *settings) patient() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.patience)
}

// difference says whether the file wants something else than the assignment
// in force; empty where it does not. It is worked out once a version.
func (s *settings) difference(a *controller.Assignment) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compared == a.Version {
		return s.differs
	}
	file := s.from
	// Forced: a change that is refused as things stand is a difference too. That force could
	// end a migration is none, so that it is as of when that began.
	now := time.Now()
	for _, v := range a.VIPs {
		if v.Migration != nil && v.Migration.Since.Before(now) {
			now = v.Migration.Since
		}
	}
	_, changes, err := controller.Plan(s.cfg, a, controller.LiveCounts{}, now, true)
	s.compared, s.differs = a.Version, ""
	switch {
	case err != nil:
		s.differs = fmt.Sprintf("%s and the assignment in force differ, and cannot be brought together: %v", file, err)
	case len(changes) > 0:
		s.differs = fmt.Sprintf("%s differs from assignment version %d in force: run fairlead plan to see how, fairlead apply to bring all daemons to the file", file, a.Version)
	}
	return s.differs
}

// Setting is a key of the file that takes a restart.
type Setting struct {
	Name  string
	Value any
}

// fixed is all of them, for a daemon that is self in cfg.
func fixed(r Role, cfg *config.Config, self config.Self) []Setting {
	return slices.Concat([]Setting{{"api", self.API}, {"interfaces", self.Interfaces}, {"metrics", self.Metrics}}, r.Fixed(self),
		[]Setting{{"limits", cfg.Limits}, {"fabric", cfg.Fabric}, bgpSetting(cfg, self), l2Setting(self)})
}
