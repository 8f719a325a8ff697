package host

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
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
//	links/handshake-IFACE attachment of host_handshake
//	links/sockops      attachment of host_sockops

type objects struct {
	bpf.HostPrograms
	bpf.HostMaps
}

// Agent is the kernel side of one server. Safe for use by several goroutines.
type Agent struct {
	o       Options
	log     *slog.Logger
	folder  *kernel.Folder
	adopted bool
	loaded  *kernel.Set              // nil: closed
	set     objects                  // the same by their names
	before  map[string]*ebpf.Program // in force until Open is over
	control *control
	sysctl  *os.File // net.ipv4.tcp_timestamps of the agent's own namespace
	devices []Interface
	jiffies kernel.Jiffies
	// attached: Open is over, and what is missing from here on somebody took away.
	attached bool
	// accepting: frames for slots' MACs are to be accepted.
	accepting bool
	astray    kernel.Astray
	unpinned  error // what the last look after pins found

	netlink *netlink.Handle
	ns      netns.NsHandle

	// For VIPs of schemes beamer and faild.
	hops  *nexthop.Watcher
	diag  *diag
	state *states
	// listeners are looked at for VIPs of all schemes.
	listeners *listeners
	offload   offload
	notes     notes
	frames    *kernel.Frames
	copies    atomic.Uint64 // of ICMP errors, sent
	peers     peerTable
	counts    counts

	mu      sync.Mutex
	table   *tables.HostTable  // what is applied
	chains  []*tables.ChainVIP // of it
	sources []bpf.HostSource   // written
	joins   joins
	epoch   [2]uint32 // which epoch each parity stands for
	// version is the last that Apply was called with, former what the one
	// before it refused (or, of an adopted table, what that does).
	version uint64
	former  map[tables.Key]uint16
	open    error // of the *tables.HostPlan in force

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
	folder, err := kernel.Claim(o.PinDir, log)
	if err != nil {
		return nil, fmt.Errorf("host agent: %w", err)
	}
	a = &Agent{o: o, log: log.With("agent", o.Name), folder: folder}
	defer func() {
		if err != nil {
			if folder.Fresh { // what we began is ours to undo
				err = errors.Join(err, takeBack(o.PinDir))
			}
			folder.Abandon()
			a.release()
			a = nil
		}
	}()
	before, err := kernel.OpenSet(o.PinDir, nil)
	if err != nil {
		return a, fmt.Errorf("host agent: adopt: %w", err)
	}
	defer before.Close()
	if a.sysctl, err = os.Open("/proc/sys/net/ipv4/tcp_timestamps"); err != nil {
		return a, fmt.Errorf("host agent: %w", err)
	}
	if a.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return a, fmt.Errorf("host agent: netlink: %w", err)
	}
	if err := a.openOwn(); err != nil {
		return a, err
	}
	if err := a.load(before); err != nil {
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
	a.attached, a.before = true, nil
	return a, nil
}

// load makes maps and programs. Pinned maps are taken over, whatever programs
// use them today.
func (a *Agent) load(before *kernel.Set) error {
	spec, err := bpf.LoadHost()
	if err != nil {
		return fmt.Errorf("host agent: read the object: %w", err)
	}
	cookie, err := netnsCookie()
	if err != nil {
		return err
	}
	if a.jiffies, err = kernel.MeasureJiffies(); err != nil {
		return fmt.Errorf("host agent: %w", err)
	}
	guards := uint32(1)
	if a.o.Unguarded {
		guards = 0
	}
	err = kernel.SetConstants(spec, map[string]any{
		"guards": guards, "netns_cookie": cookie, "jiffy_mult": a.jiffies.Mult, "jiffy_shift": a.jiffies.Shift,
	})
	if err != nil {
		return fmt.Errorf("host agent: %w", err)
	}
	replace, _ := before.Adoptable(spec)
	reasons := before.Maps[mapReasons]
	if reasons != nil && !fewerReasons(spec.Maps[mapReasons], reasons) {
		reasons = nil
	}
	for name, m := range before.Maps {
		if replace[name] == nil && m != reasons {
			return fmt.Errorf("host agent: adopt: %s: pinned by another version of fairlead in a form that this one does not know; "+
				"let the server's connections end, then: fairlead unload %s", filepath.Join(a.o.PinDir, kernel.DirMaps, name), a.o.PinDir)
		}
	}
	a.adopted = len(before.Maps) > 0
	a.folder.Fresh, a.before = !a.adopted, before.Programs
	if a.loaded, err = kernel.Load(spec, "the programs", replace, a.log); err != nil {
		return fmt.Errorf("host agent: %w", err)
	}
	// Of clones of the lists, which Assign empties.
	c := ebpf.Collection{Maps: maps.Clone(a.loaded.Maps), Programs: maps.Clone(a.loaded.Programs)}
	if err := c.Assign(&a.set); err != nil {
		return fmt.Errorf("host agent: %w", err)
	}
	if reasons != nil {
		return carryReasons(reasons, a.set.HostReasons)
	}
	return nil
}

// setUp prepares a control that is new and brings an adopted one up to date.
func (a *Agent) setUp() error {
	switch got := a.control.load(offLayout); {
	case got == 0:
		a.control.store(offLayout, bpf.HostLayout)
	case got != bpf.HostLayout:
		return fmt.Errorf("host agent: %s has layout %d, this fairlead knows %d; let the server's connections end, then: fairlead unload %s",
			a.o.PinDir, got, bpf.HostLayout, a.o.PinDir)
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
	if err := a.setUpOffload(); err != nil {
		return err
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
	a.closeOwn()
	a.loaded.Close()
	a.loaded = nil
	if a.netlink != nil {
		a.netlink.Close()
	}
	if a.sysctl != nil {
		a.sysctl.Close()
	}
	a.folder.Close()
}

// Unload detaches an agent's programs, takes the VIPs that it added off the
// loopback, undoes what else it changed (host_notes) and removes everything
// pinned under pinDir. Connections through
// balancers end with it. It must run in the agent's network namespace.
// Nothing pinned is no error.
func Unload(pinDir string) error {
	return kernel.Unload(pinDir, func() error { return takeBack(pinDir) })
}

// takeBack undoes what the agent of pinDir changed in the calling thread's network
// namespace beside what its links do.
func takeBack(pinDir string) error {
	s, err := kernel.OpenSet(pinDir, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	errs := []error{detachClassic(h, classicOut, nil), detachClassic(h, classicAccept, nil), detachClassic(h, classicHandshake, nil)}
	if added := s.Maps["host_added"]; added != nil {
		errs = append(errs, removeVIPs(h, added, func(netip.Addr) bool { return false }))
	}
	if m := s.Maps["host_notes"]; m != nil {
		errs = append(errs, undoNotes(h, notes{m}))
	}
	return errors.Join(errs...)
}
