package daemon

import (
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/topology"
)

// readsFabric is a plane that takes over a fabric's file that has changed. It says
// whether it uses anything of what has; with an error it goes on as before.
type readsFabric interface {
	readFabric(f *topology.Fabric) (changed bool, err error)
}

// reload reads the configuration again (SIGHUP). Peers, their certificates and
// the fabric change at once; what is fixed while the programs are loaded is
// named; what is shared is left to `fairlead apply`, which changes all daemons
// together.
func (d *daemon) reload() {
	cfg, err := config.Load(d.opts.File)
	if err != nil {
		d.log.Error("configuration not reloaded; what was read before stays", "error", err)
		return
	}
	me, err := findSelf(cfg, d.me.role, d.me.name)
	if err != nil {
		d.log.Error("configuration not reloaded; what was read before stays", "error", err)
		return
	}
	if err := d.peers.set(cfg, d.me.name); err != nil {
		d.log.Error("configuration not reloaded; what was read before stays", "error", err)
		return
	}
	if d.share != nil {
		d.share.follow(d.peers.list())
	}
	d.compareFile(cfg, d.readFabric(cfg)...)
	d.log.Info("configuration reloaded", "file", d.opts.File, "entry", me.name)
}

// readFabric has the plane read the fabric's file again, and says why that was not
// possible. A file of another name needs a restart.
func (d *daemon) readFabric(cfg *config.Config) (warnings []string) {
	p, ok := d.plane.(readsFabric)
	if !ok || cfg.Fabric == "" || cfg.Fabric != d.first.Fabric {
		return nil
	}
	fabric, err := topology.Read(cfg.Fabric)
	changed := false
	if err == nil {
		changed, err = p.readFabric(fabric)
	}
	switch {
	case err != nil:
		d.log.Error("fabric not read again; what was read before stays", "file", cfg.Fabric, "error", err)
		warnings = append(warnings, fmt.Sprintf("%s is not in force, what was read before is: %s; put it right and reload (SIGHUP)", cfg.Fabric, oneLine(err)))
	case changed:
		d.log.Info("fabric read again", "file", cfg.Fabric)
	}
	return warnings
}

// oneLine is an error for a warning: a file may have several problems.
func oneLine(err error) string {
	first, _, more := strings.Cut(err.Error(), "\n")
	if more {
		first += "; and more"
	}
	return first
}

// compareFile keeps cfg and warns of everything in it that is not in force;
// warnings is what is known of that already.
func (d *daemon) compareFile(cfg *config.Config, warnings ...string) {
	set := &settings{cfg: cfg, warnings: warnings}
	warn := func(text string) {
		set.warnings = append(set.warnings, text)
		d.log.Warn(text)
	}
	if now, err := findSelf(cfg, d.me.role, d.me.name); err == nil {
		fields := []setting{
			{"api", d.me.api, now.api},
			{"interfaces", d.me.interfaces, now.interfaces},
			{"metrics", d.me.metrics, now.metrics},
			{"source", sources(d.me), sources(now)},
			{"gue_checksum", checksum(d.me), checksum(now)},
			{"limits", d.first.Limits, cfg.Limits},
			{"tls", d.first.TLS, cfg.TLS},
			{"fabric", d.first.Fabric, cfg.Fabric},
		}
		for _, f := range append(fields, switchSettings(d.me, now)...) {
			if !reflect.DeepEqual(f.old, f.is) {
				warn(fmt.Sprintf("%s changed in %s: restart this daemon to use it (nothing stops meanwhile)", f.name, d.opts.File))
			}
		}
	}
	d.settings.Store(set)
	a := d.force.Load().Assignment
	if text := set.difference(a, d.opts.File); text != "" {
		d.log.Warn(text)
	}
}

// difference says whether the file wants something else than the assignment
// in force; empty where it does not. It is worked out once a version.
func (s *settings) difference(a *controller.Assignment, file string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.compared == a.Version {
		return s.differs
	}
	// Forced: a change that is refused as things stand is a difference too.
	_, changes, err := controller.Plan(s.cfg, a, controller.LiveCounts{}, time.Now(), true)
	s.compared, s.differs = a.Version, ""
	switch {
	case err != nil:
		s.differs = fmt.Sprintf("%s and the assignment in force differ, and cannot be brought together: %v", file, err)
	case len(changes) > 0:
		s.differs = fmt.Sprintf("%s differs from assignment version %d in force: run fairlead plan to see how, fairlead apply to bring all daemons to the file", file, a.Version)
	}
	return s.differs
}

func checksum(s self) any {
	if s.balancer == nil {
		return nil
	}
	return s.balancer.GUEChecksum
}

// setting is a key of the file, what it was when the daemon started and what
// it is.
type setting struct {
	name    string
	old, is any
}

// switchSettings is what fabric is opened with.
func switchSettings(old, is self) []setting {
	a, b := old.sw, is.sw
	if a == nil || b == nil {
		return nil
	}
	return []setting{{"bridge", a.Bridge, b.Bridge}, {"ports", a.Ports, b.Ports}, {"announce_table", a.AnnounceTable, b.AnnounceTable},
		{"lock_percent", a.LockPercent, b.LockPercent}, {"lock_window", a.LockWindow, b.LockWindow}, {"flaps", a.Flaps, b.Flaps}}
}

func sources(s self) any {
	if s.balancer == nil {
		return nil
	}
	return [2]string{s.balancer.Source.String(), s.balancer.Source6.String()}
}

// notifySystemd tells the service manager, if there is one, a state of
// sd_notify(3).
func notifySystemd(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	if path[0] == '@' {
		path = "\x00" + path[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return // the manager times the start out and says so
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
