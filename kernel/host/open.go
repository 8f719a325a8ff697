package host

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
)

// In a pin folder:
//
//	maps/NAME          the maps
//	programs/NAME      the programs in force
//	links/xdp-IFACE    attachment of host_in
//	links/tcx-IFACE    attachment of host_out
//	links/accept-IFACE attachment of host_accept
//	links/sockops      attachment of host_sockops
const (
	dirMaps     = "maps"
	dirPrograms = "programs"
	dirLinks    = "links"
)

// layout is FL_HOST_LAYOUT: the form of the pinned maps. A pinned folder of
// another form is refused.
const layout = 1

// Agent is the kernel side of one server. Safe for use by several goroutines.
type Agent struct {
	o       Options
	log     *slog.Logger
	lock    *os.File
	adopted bool
	fresh   bool // this Open pinned everything that is pinned
	set     *bpf.HostObjects
	control *control
	sysctl  *os.File // net.ipv4.tcp_timestamps of the agent's own namespace
	devices []Interface
	hz      int
	links   map[string]link.Link // held open, by their pins' names
	// attached: Open is over, and what is missing from here on somebody took away.
	attached bool
	// accepting: frames for slots' MACs are to be accepted.
	accepting bool
	astray    map[string]string // what is not as it should be, by what: see tend

	netlink *netlink.Handle
	ns      netns.NsHandle

	// For VIPs of schemes beamer and faild.
	hops        *nexthop.Watcher
	diag        *diag
	state       *states
	notes       notes
	broadcaster *broadcaster
	copies      atomic.Uint64 // of ICMP errors, sent
	peers       peerTable
	counts      counts

	mu      sync.Mutex
	table   *table           // what is applied
	chains  []*chainVIP      // of it
	sources []bpf.HostSource // written
	joins   joins
	epoch   [2]uint32 // which epoch each parity stands for
	// version is the last that Apply was called with, former what the one
	// before it refused (or, of an adopted table, what that does).
	version uint64
	former  map[tables.Key]uint16
	open    error // of the ownPlan in force

	noTimestamps bool // the sysctl is 0
}

// Open loads the programs, or adopts what is pinned and replaces its programs
// by this build's, and attaches them. It must run in the network namespace
// that the agent serves; later calls may run anywhere. Nothing is changed for
// packets until the first Apply, or as long as an earlier one holds.
func Open(o Options, log *slog.Logger) (a *Agent, err error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("host agent: %w; run it as root", err)
	}
	if err := kernel.Ensure(o.PinDir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.PinDir, 0o700); err != nil {
		return nil, err
	}
	a = &Agent{o: o, log: log.With("agent", o.Name), links: map[string]link.Link{}}
	defer func() {
		if err != nil {
			if a.fresh { // what we began is ours to undo
				err = errors.Join(err, detach(o.PinDir), os.RemoveAll(o.PinDir))
			}
			a.release()
			a = nil
		}
	}()
	if a.lock, err = kernel.Lock(o.PinDir); err != nil {
		return a, err
	}
	for _, dir := range []string{dirMaps, dirPrograms, dirLinks} {
		if err := kernel.Sweep(filepath.Join(o.PinDir, dir)); err != nil {
			return a, fmt.Errorf("host agent: %w", err)
		}
	}
	if a.sysctl, err = os.Open("/proc/sys/net/ipv4/tcp_timestamps"); err != nil {
		return a, fmt.Errorf("host agent: %w", err)
	}
	if a.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return a, fmt.Errorf("host agent: netlink: %w", err)
	}
	if err := a.openOwn(); err != nil {
		return a, err
	}
	if err := a.load(); err != nil {
		return a, err
	}
	a.notes = notes{a.set.HostNotes}
	if a.control, err = openControl(a.set.HostControl); err != nil {
		return a, err
	}
	if err := a.setUp(); err != nil {
		return a, err
	}
	if err := a.attach(); err != nil {
		return a, err
	}
	a.attached = true
	return a, nil
}

// load makes maps and programs. Pinned maps are taken over, whatever programs
// use them today.
func (a *Agent) load() error {
	spec, err := bpf.LoadHost()
	if err != nil {
		return fmt.Errorf("host agent: read the object: %w", err)
	}
	cookie, err := netnsCookie()
	if err != nil {
		return err
	}
	scale, err := jiffyScale()
	if err != nil {
		return err
	}
	a.hz = scale.hz
	guards := uint32(1)
	if a.o.Unguarded {
		guards = 0
	}
	for name, value := range map[string]any{
		"guards": guards, "netns_cookie": cookie, "jiffy_mult": scale.mult, "jiffy_shift": scale.shift,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("host agent: constant %s: %w", name, err)
		}
	}
	pinned := map[string]*ebpf.Map{}
	var reasons *ebpf.Map // in a form with fewer of them
	defer func() {
		for _, m := range pinned {
			m.Close()
		}
		if reasons != nil {
			reasons.Close()
		}
	}()
	maps := filepath.Join(a.o.PinDir, dirMaps)
	err = kernel.Each(maps, func(name, path string) error {
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			return err
		}
		if s := spec.Maps[name]; name == mapReasons && s != nil && fewerReasons(s, m) {
			reasons = m
			return nil
		}
		pinned[name] = m
		if s := spec.Maps[name]; s == nil || s.Compatible(m) != nil {
			return fmt.Errorf("pinned by another version of fairlead in a form that this one does not know; "+
				"let the server's connections end, then: fairlead unload %s", a.o.PinDir)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("host agent: adopt: %w", err)
	}
	a.adopted = len(pinned) > 0 || reasons != nil
	a.fresh = !a.adopted
	a.set = &bpf.HostObjects{}
	err = spec.LoadAndAssign(a.set, &ebpf.CollectionOptions{MapReplacements: pinned})
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("host agent: the kernel refuses the programs (%w); fairlead doctor says what it lacks", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("host agent: load: %w; run it as root or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN", err)
	case err != nil:
		return fmt.Errorf("host agent: load: %w", err)
	}
	if reasons != nil {
		if err := carryReasons(reasons, a.set.HostReasons); err != nil {
			return err
		}
	}
	for name, m := range a.maps() {
		if pinned[name] != nil {
			continue
		}
		if err := kernel.Replace(m, filepath.Join(maps, name)); err != nil {
			return err
		}
	}
	return nil
}

func (a *Agent) maps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"host_vips": a.set.HostVips, "host_control": a.set.HostControl, "host_sockets": a.set.HostSockets,
		"old_epochs": a.set.OldEpochs, "host_reasons": a.set.HostReasons, "host_vip_count": a.set.HostVipCount,
		"host_added": a.set.HostAdded, "host_notes": a.set.HostNotes, "host_peers": a.set.HostPeers,
		"host_senders": a.set.HostSenders, "host_sources": a.set.HostSources, "host_own": a.set.HostOwn,
		"host_flows": a.set.HostFlows, "host_nics": a.set.HostNics, "host_asks": a.set.HostAsks,
	}
}

func (a *Agent) programs() map[string]*ebpf.Program {
	return map[string]*ebpf.Program{
		"host_in": a.set.HostIn, "host_out": a.set.HostOut, "host_sockops": a.set.HostSockops, "host_clock": a.set.HostClock,
		"host_accept": a.set.HostAccept,
	}
}

// setUp prepares a control that is new and brings an adopted one up to date.
func (a *Agent) setUp() error {
	switch got := a.control.load(offLayout); {
	case got == 0:
		a.control.store(offLayout, layout)
	case got != layout:
		return fmt.Errorf("host agent: %s has layout %d, this fairlead knows %d; let the server's connections end, then: fairlead unload %s",
			a.o.PinDir, got, layout, a.o.PinDir)
	}
	if err := a.watchTimestamps(); err != nil {
		return err
	}
	t, err := readTable(a.set.HostVips, a.control)
	if err != nil {
		return fmt.Errorf("host agent: adopt: %w", err)
	}
	a.table = t
	if err := a.adoptPeers(); err != nil {
		return fmt.Errorf("host agent: adopt: %w", err)
	}
	if err := a.adoptSources(); err != nil {
		return fmt.Errorf("host agent: adopt: %w", err)
	}
	return a.refreshClock()
}

// Close lets go of everything. It all stays pinned and attached, and packets
// go on.
func (a *Agent) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release()
	return nil
}

func (a *Agent) release() {
	for _, l := range a.links {
		l.Close()
	}
	a.links = nil
	a.closeOwn()
	if a.set != nil {
		a.set.Close()
	}
	if a.netlink != nil {
		a.netlink.Close()
	}
	for _, f := range []*os.File{a.sysctl, a.lock} {
		if f != nil {
			f.Close()
		}
	}
}

// Unload detaches an agent's programs, takes the VIPs that it added off the
// loopback, undoes what else it changed (host_notes) and removes everything
// pinned under pinDir. Connections through
// balancers end with it. It must run in the agent's network namespace.
// Nothing pinned is no error.
func Unload(pinDir string) error {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !kernel.On(pinDir) {
		return fmt.Errorf("%s is not on a bpffs; name the folder that fairlead status calls pin_dir", pinDir)
	}
	lock, err := kernel.Lock(pinDir)
	if err != nil {
		return err
	}
	defer lock.Close()
	errs := []error{detach(pinDir), removeAdded(pinDir), undoNotes(pinDir)}
	return errors.Join(append(errs, os.RemoveAll(pinDir))...)
}
