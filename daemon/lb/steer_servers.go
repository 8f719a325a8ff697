package lb

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/vip"
)

// steeredServer is a server that tunnels are steered to.
type steeredServer struct {
	*steer.Server          // nil: the fabric's file has no path to it
	err           error    // it cannot be steered to: that, or its paths cannot be probed
	links         []string // of each path: their names, joined by a space
	rank          int      // see steer.Ranks
	prober        prober
	stop          context.CancelFunc
	every         time.Duration
	holds         []steer.Hold
	used          []bool // the paths that stand best (steer.Best)
	states        []probe.State
	judged        bool             // each path has been, since the daemon started
	moved         map[string]moves // by way of steering
}

// moves are parts of connections that went to another path, and when last.
type moves struct {
	parts uint64
	last  time.Time
}

// unprobed says whether there is a server whose paths could be probed and are not.
func (w *steerWatch) unprobed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		if s.Server != nil && s.prober == nil {
			return true
		}
	}
	return false
}

// reconcile begins with new servers and ends with those that went.
func (w *steerWatch) reconcile(ctx context.Context, probers *sync.WaitGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for address, s := range w.servers {
		if w.wanted[address] == nil {
			s.end()
			delete(w.servers, address)
			w.ranks.Leave(address)
		}
	}
	count := 0
	for address := range w.wanted {
		s := w.servers[address]
		if s == nil {
			s = w.find(w.fabric, address, nil)
			w.servers[address] = s
		}
		count += len(s.paths())
	}
	w.rank()
	every := interval(count)
	for address, s := range w.servers {
		if s.Server != nil && (s.prober == nil || s.every != every) {
			s.err = w.begin(ctx, probers, s, every) // what failed may work now
		}
		w.tell(address, s.err)
	}
}

// rank numbers the servers that have one path each. One that is new here stays on
// the path that its row in the kernel names: a daemon before chose it.
func (w *steerWatch) rank() {
	var fresh []netip.Addr
	for _, address := range slices.SortedFunc(maps.Keys(w.servers), netip.Addr.Compare) {
		switch {
		case !w.wanted[address][vip.SteerServer]:
			w.ranks.Leave(address)
		case w.servers[address].Server != nil && !w.ranks.Has(address):
			fresh = append(fresh, address)
		}
	}
	if len(fresh) > 0 {
		w.keepPaths(fresh)
	}
	for address, s := range w.servers {
		if w.wanted[address][vip.SteerServer] && s.Server != nil {
			s.rank = w.ranks.Of(address)
		}
	}
}

func (w *steerWatch) keepPaths(servers []netip.Addr) {
	rows, err := w.plane.SteerRowsInForce()
	if err != nil {
		w.log.Warn("paths that were chosen before are not known; servers may change theirs", "error", err)
	}
	var others []netip.Addr
	for _, address := range servers {
		s := w.servers[address]
		row, ok := rows[lb.SteerKey{Server: address, By: vip.SteerServer}]
		if path := s.OnePathOf(row); ok && path >= 0 {
			w.ranks.Keep(address, path, len(s.Paths))
		} else {
			others = append(others, address)
		}
	}
	for _, address := range others {
		w.ranks.Of(address)
	}
}

// tell logs why a server is not steered to, once for each reason.
func (w *steerWatch) tell(server netip.Addr, err error) {
	if err == nil {
		delete(w.told, server)
		return
	}
	if w.told[server] != err.Error() {
		w.told[server] = err.Error()
		w.log.Warn("tunnels to a server are not steered", "server", server, "error", err)
	}
}

// interval between two probes of a path where so many are probed.
func interval(paths int) time.Duration {
	every := steerInterval
	for float64(paths)/every.Seconds() > steerProbes {
		every *= 2
	}
	return every
}

func (s *steeredServer) paths() []paths.Path {
	if s.Server == nil {
		return nil
	}
	return s.Paths
}

func (s *steeredServer) end() {
	if s.stop != nil {
		s.stop()
	}
	s.prober, s.stop = nil, nil
}

// find looks for the paths to a server, which is work: once, and when the file has
// changed. What is known of them from before, if it was steered to, holds.
func (w *steerWatch) find(f *steer.Steering, address netip.Addr, before *steeredServer) *steeredServer {
	server, err := f.Server(address, w.plane.TunnelSource(address))
	s := &steeredServer{Server: server, err: err, moved: map[string]moves{}}
	if before != nil {
		s.moved = before.moved
	}
	if err != nil {
		return s
	}
	s.holds, s.used = make([]steer.Hold, len(server.Paths)), make([]bool, len(server.Paths))
	s.judged = before != nil && before.judged
	for i := range s.used {
		s.links = append(s.links, strings.Join(f.Links(&server.Paths[i]), " "))
		was := -1
		if before != nil {
			was = slices.Index(before.links, s.links[i])
		}
		if was < 0 {
			s.used[i], s.judged = true, false
		} else {
			s.used[i], s.holds[i] = before.used[was], before.holds[was]
		}
	}
	return s
}

// read takes over a fabric's file that was read again, and says whether it says
// anything else. With an error all stays as it was: a server that is steered to
// must be so by the new file, too.
func (w *steerWatch) read(f *topology.Fabric) (changed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if reflect.DeepEqual(f, w.fabric.Fabric()) {
		return false, nil
	}
	next, err := steer.New(f, w.name)
	if err != nil {
		return false, err
	}
	servers := map[netip.Addr]*steeredServer{}
	for address, before := range w.servers {
		s := w.find(next, address, before)
		if s.err != nil && before.Server != nil {
			return false, fmt.Errorf("tunnels to server %s, which are steered, would be no more (if that is meant, set steer off for its VIPs first): %w", address, s.err)
		}
		servers[address] = s
	}
	for _, before := range w.servers {
		before.end()
	}
	w.fabric, w.servers, w.ranks = next, servers, steer.Ranks{}
	daemon.Poke(w.again)
	return true, nil
}

// begin probes a server's paths.
func (w *steerWatch) begin(ctx context.Context, probers *sync.WaitGroup, s *steeredServer, every time.Duration) error {
	s.end()
	source, err := w.probeSource(s.Address)
	if err != nil {
		return err
	}
	p, err := w.open(probe.Config{Fabric: w.fabric.Fabric(), From: w.name, Source: source, Interval: every, Timeout: steerTimeout, Relative: true,
		Targets: []probe.Target{{Host: s.Name, Address: s.Address, Paths: s.Paths}}, Log: w.log})
	if err != nil {
		return fmt.Errorf("probe its paths: %w", err)
	}
	run, stop := context.WithCancel(ctx)
	s.prober, s.stop, s.every = p, stop, every
	probers.Go(func() {
		defer stop()
		if err := p.Run(run); err != nil && run.Err() == nil {
			w.log.Error("probes have ended; they begin again", "server", s.Name, "error", err)
			w.mu.Lock()
			if s.prober == p {
				s.prober, s.err = nil, fmt.Errorf("its paths are not probed: %w", err)
			}
			w.mu.Unlock()
		}
	})
	probers.Go(func() {
		for {
			select {
			case <-run.Done():
				return
			case <-p.Changes():
				daemon.Poke(w.news)
			}
		}
	})
	return nil
}

// probeSource is where probes come from: as the tunnels, if that is an address of
// this machine, to which answers find back.
func (w *steerWatch) probeSource(server netip.Addr) (netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	own := map[netip.Addr]bool{}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	candidates := append([]netip.Addr{w.plane.TunnelSource(server)}, w.fabric.Addresses()...)
	for _, a := range candidates {
		if own[a] && a.Is6() == server.Is6() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("probes to %s have no source: none of this host's addresses in the fabric's file (%v) is on this machine; put them right there", server, w.fabric.Addresses())
}
