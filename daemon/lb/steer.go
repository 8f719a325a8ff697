package lb

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/vip"
)

// A balancer's tunnels take the paths of the fabric that probes find good:
//
//	assignment ─follow─▶ servers of steered VIPs ─▶ a prober each, along every path
//	                                                      │ verdicts
//	rows of ports before packets ◀─SetSteers─ fabric/steer: who takes which path
//
// A server's row is first written when each of its paths is judged. Until then
// its tunnels go as the daemon before chose, or as their hash says.
//
// steer_servers.go has the servers and their probers, steer_status.go what is
// told of them.

const (
	// steerInterval between two probes of a path, and how many probes a second
	// one balancer sends at most: with more paths the interval doubles until it
	// fits.
	steerInterval = probe.DefaultInterval
	steerProbes   = 20_000
	// steerTimeout: three probes in a row are lost after at most three intervals
	// and this, half a second.
	steerTimeout = 200 * time.Millisecond
	// steerLook is how often round trips, holds and failures are looked at
	// without a change of verdicts.
	steerLook = time.Second
	// steerRetry: servers that cannot be probed are tried again so often.
	steerRetry = 5 * time.Second
)

// steerPlane is what is asked of the data plane.
type steerPlane interface {
	SetSteers(rows map[lb.SteerKey]steer.Row) error
	SteerRowsInForce() (map[lb.SteerKey]steer.Row, error)
	// TunnelSource is the outer source of tunnels to the server.
	TunnelSource(server netip.Addr) netip.Addr
}

// prober is what steering uses of a probe.Prober.
type prober interface {
	Run(ctx context.Context) error
	States() []probe.State
	Changes() <-chan struct{}
	Close()
}

// steerWatch steers one balancer's tunnels.
type steerWatch struct {
	log   *slog.Logger
	name  string
	plane steerPlane
	open  func(probe.Config) (prober, error) // newProber, but in tests

	mu      sync.Mutex
	fabric  *steer.Steering
	wanted  map[netip.Addr]map[string]bool // ways of steering, by server
	servers map[netip.Addr]*steeredServer
	ranks   steer.Ranks               // of servers that have one path
	set     map[lb.SteerKey]steer.Row // what the plane was told
	told    map[netip.Addr]string     // why a server is not steered to, as logged
	again   chan struct{}             // wanted has changed
	news    chan struct{}             // a verdict has
}

func newProber(c probe.Config) (prober, error) { return probe.New(c) }

// openSteering reads the fabric; nil: tunnels cannot be steered.
func openSteering(me *config.Balancer, cfg *config.Config, log *slog.Logger) (*steerWatch, error) {
	if cfg.Fabric == "" || !oneSource(me) {
		return nil, nil
	}
	f, err := topology.Read(cfg.Fabric)
	if err != nil {
		return nil, err
	}
	s, err := steer.New(f, me.Name)
	if err != nil {
		err = fmt.Errorf("%s: %w; add it to the file's hosts", cfg.Fabric, err)
		if slices.ContainsFunc(cfg.VIPs, func(v config.VIP) bool { return v.Steers() }) {
			return nil, err
		}
		log.Warn("no tunnels can be steered, as none shall be", "error", err)
		return nil, nil
	}
	return &steerWatch{log: log, name: me.Name, fabric: s, open: newProber,
		servers: map[netip.Addr]*steeredServer{}, told: map[netip.Addr]string{}, again: make(chan struct{}, 1), news: make(chan struct{}, 1)}, nil
}

// oneSource says whether b's tunnels have one source a family, as routers hash
// it. Host bits are right where no VIP steers.
func oneSource(b *config.Balancer) bool {
	return (!b.Source.IsValid() || b.Source.IsSingleIP()) && (!b.Source6.IsValid() || b.Source6.IsSingleIP())
}

// follow makes the servers of a's steered VIPs those that are steered to.
func (w *steerWatch) follow(a *controller.Assignment) {
	wanted := map[netip.Addr]map[string]bool{}
	for _, v := range a.VIPs {
		if v.Steer == "" || v.Scheme.Row().Switched {
			continue
		}
		for _, s := range v.Slots {
			address := s.Address.Unmap()
			if wanted[address] == nil {
				wanted[address] = map[string]bool{}
			}
			wanted[address][v.Steer] = true
		}
	}
	w.mu.Lock()
	w.wanted = wanted
	w.mu.Unlock()
	daemon.Poke(w.again)
}

// run probes and steers until ctx ends.
func (w *steerWatch) run(ctx context.Context) error {
	var probers sync.WaitGroup
	defer probers.Wait()
	look := time.NewTicker(steerLook)
	defer look.Stop()
	var tried time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.again:
			w.reconcile(ctx, &probers)
		case <-w.news:
		case <-look.C:
			if w.unprobed() && time.Since(tried) > steerRetry {
				tried = time.Now()
				w.reconcile(ctx, &probers)
			}
		}
		next := w.look(time.Now())
		if next > 0 && next < steerLook {
			look.Reset(next)
		} else {
			look.Reset(steerLook)
		}
	}
}

// look reads what the probes say, and puts what follows from it before packets.
// It returns after what time a path that is held may be used; 0: there is none.
func (w *steerWatch) look(now time.Time) (next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := map[lb.SteerKey]steer.Row{}
	for address, s := range w.servers {
		if s.prober != nil {
			until := s.judge(w.log, now)
			if !until.IsZero() && (next == 0 || until.Sub(now) < next) {
				next = max(until.Sub(now), time.Millisecond)
			}
		}
		for by := range w.wanted[address] {
			key := lb.SteerKey{Server: address, By: by}
			was, ok := w.set[key]
			if s.prober != nil && s.judged {
				rows[key] = s.Row(steerMode(by), s.used, s.rank)
			} else if ok {
				rows[key] = was // holds until more is known
			}
		}
	}
	if maps.Equal(rows, w.set) {
		return next
	}
	if err := w.plane.SetSteers(rows); err != nil {
		w.log.Error("steer tunnels; trying once more", "error", err)
		return next
	}
	for key, row := range rows {
		if was, ok := w.set[key]; ok && was != row {
			s := w.servers[key.Server]
			s.moved[key.By] = moves{s.moved[key.By].parts + moved(was, row), now}
		}
	}
	w.set = rows
	return next
}

// judge takes over the verdicts on a server's paths, and returns when the first
// one that is held may be used.
func (s *steeredServer) judge(log *slog.Logger, now time.Time) (until time.Time) {
	s.states = s.prober.States()
	judged := true
	stand := make([]steer.Standing, len(s.holds))
	for _, st := range s.states {
		h := &s.holds[st.Path]
		if st.Verdict == probe.Unknown && !unprobable(st) {
			judged = false // what was known before holds
		} else {
			h.Judge(standing(st.Verdict), now)
		}
		stand[st.Path] = h.Standing(now)
		if t := h.Until(now); !t.IsZero() && (until.IsZero() || t.Before(until)) {
			until = t
		}
	}
	s.use(log, steer.Best(stand))
	s.judged = s.judged || judged
	return until
}

// use has the paths used from now on, if any are named.
func (s *steeredServer) use(log *slog.Logger, paths []bool) {
	for _, st := range s.states {
		if i := st.Path; paths != nil && paths[i] != s.used[i] {
			s.used[i] = paths[i]
			log.Info("path to a server", "server", s.Name, "over", s.links[i], "used", s.used[i], "verdict", string(st.Verdict), "reason", st.Reason)
		}
	}
}

// standing is how a path with this verdict stands.
func standing(v probe.Verdict) steer.Standing {
	switch v {
	case probe.Good:
		return steer.Good
	case probe.Unknown:
		return steer.Unknown
	case probe.Slow, probe.Astray: // it carries packets
		return steer.Slow
	}
	return steer.Bad
}

// unprobable says whether a path will never be judged, since no probe takes it:
// nobody knows whether it is good.
func unprobable(st probe.State) bool { return st.Verdict == probe.Unknown && st.Reason != "" }

func steerMode(by string) steer.Mode {
	if by == vip.SteerServer {
		return steer.OnePath
	}
	return steer.AllPaths
}

// moved is how many parts of the connections go another way.
func moved(was, is steer.Row) (n uint64) {
	for i := range was {
		if was[i] != is[i] {
			n++
		}
	}
	return n
}
