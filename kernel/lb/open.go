// Package lb runs the balancer's programs in the kernel: it loads,
// pins, attaches and replaces them, fills their tables from an assignment,
// keeps next hops right and reads the counters.
//
// The daemon is not in the packet's way. Everything that packets need is
// pinned; Open adopts what it finds, whichever version of the program left
// it there, and Close leaves it running. Life of one balancer's set of maps:
//
//	(nothing) ──Open──▶ in force ──Open, same layout──▶ in force, program replaced
//	                       │
//	                       └──Open, other layout or sizes──▶ in force + pending beside
//	                                                            │ Apply fills it, swaps the links
//	                                                            ▼
//	                                                         in force, counters carried
package lb

import (
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/scheme/rates"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/tables"
)

// Options say what to load and where to attach it.
type Options struct {
	Name       string // the daemon's own name
	PinDir     string // default kernel.Dir(Name)
	Interfaces []string
	// Source4 and Source6 are the tunnels' outer sources; the host bits of
	// the prefix take the connection's hash. Default: the first interface's
	// first address, no host bits.
	Source4, Source6 netip.Prefix
	Limits           config.Limits // of a loaded configuration, or config.DefaultLimits
	// GUEChecksum6 computes the UDP checksum of GUE over IPv6 instead of
	// sending zero (RFC 6935).
	GUEChecksum6 bool
	// Steer has tunnels of gue take the path that SetSteers chooses, where their
	// VIP says so (controller.VIP.Steer). Source4 and Source6 then are single
	// addresses.
	Steer bool
	// TierAddress is the balancer's own in tier two; invalid: it is not there.
	TierAddress netip.Addr
	// Unguarded leaves out what holds attackers off: for the laboratory, which
	// shows with it that an attack is one (docs/security.md).
	Unguarded bool
}

// maxServerLines is config's bound; a health mark can name more (20 bits).
const maxServerLines = 1 << 18

// LB is a balancer's data plane.
type LB struct {
	o       Options
	log     *slog.Logger
	folder  *kernel.Folder
	ns      netns.NsHandle
	hops    *nexthop.Watcher
	netlink *netlink.Handle
	asker   asker
	random  *rand.Rand
	jiffies kernel.Jiffies

	mu       sync.Mutex
	ifaces   []net.Interface // of o.Interfaces; index 0: it is gone
	astray   kernel.Astray
	set      *objects // what the daemon fills: in force, or pending
	old      *objects // in force while set is pending, else nil
	attached bool     // set is in force: false while it is pending and nothing was swapped
	oldForce inForce  // what old's active half says
	// oldReadable: old has this build's layout, and its counters, which can
	// be read, are not carried yet.
	oldReadable    bool
	foreignCarried bool         // of another layout: they are
	exchanged      int          // folders of pins, by settleSwap
	flowsCarried   uint16       // flowUnit at which old's flows were carried
	force          inForce      // what set's active half says
	unfinished     func() error // clears away what force replaced; nil: done
	written        map[uint32]writtenLine
	unread         []unreadLine // see writeUnread
	gather         bool         // writeLine leaves lines that packets name to runGathered
	gathered       []lineRun
	watched        []netip.Addr // the servers of the last plan, in its order
	waited         bool         // the ways to servers whose lines stay were, by an Apply before
	unsynced       bool         // syncLines has not written all
	checkWays      atomic.Pointer[checkWays]
	unpinned       error                  // of the last look at the pins
	waysOut        []net.Interface        // beside ifaces, where checks left
	checkLines     *ebpf.Map              // of the health program
	checked        map[uint32]netip.Addr  // what it says
	toCheck        map[uint32]netip.Addr  // what it is to say: of SteerChecks
	steerRows      map[SteerKey]steer.Row // of SetSteers
	hashes         tables.Hashes
	chains         *tables.Chains
	took           Took             // of the last assignment that came into force
	seatStats      seats.Stats      // of the last sweep of seats,
	seatsSwept     bool             // if there was one
	flowStats      FlowStats        // of the last sweep
	swept          time.Time        // when that was
	now            func() time.Time // tests set it
	clockD         uint32
	clockSet       bool
	adopted        bool
}

var errClosed = errors.New("the balancer's data plane is closed")

// Open loads the balancer, or adopts what is pinned, and attaches it. On an
// error nothing was changed. Until the first Apply a fresh balancer passes
// every packet, and an adopted one goes on as before.
func Open(o Options, log *slog.Logger) (lb *LB, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := kernel.CheckSystem(ebpf.XDP, ebpf.SchedCLS, ebpf.Syscall); err != nil {
		return nil, err
	}
	ifaces, err := findInterfaces(o.Interfaces)
	if err != nil {
		return nil, err
	}
	folder, err := kernel.Claim(o.PinDir, log)
	if err != nil {
		return nil, err
	}
	l := &LB{o: o, log: log, folder: folder, ns: netns.None(), ifaces: ifaces, random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		written: map[uint32]writtenLine{}, hashes: tables.Hashes{}, chains: tables.NewChains(), now: time.Now}
	defer func() {
		if err != nil {
			folder.Abandon()
			l.release()
		}
	}()
	if l.ns, err = netns.Get(); err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	if l.hops, err = nexthop.New(log); err != nil {
		return nil, err
	}
	if l.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if l.asker.Frames, err = kernel.OpenFrames(askFrames); err != nil {
		return nil, err
	}
	if err := finishSwap(o.PinDir, log); err != nil {
		return nil, err
	}
	if err := l.load(); err != nil {
		return nil, err
	}
	return l, nil
}

// complete fills in defaults and refuses what cannot be.
func (o *Options) complete() error {
	if o.Name == "" && o.PinDir == "" {
		return errors.New("the balancer has no name; give it one under balancers[].name")
	}
	var err error
	if o.PinDir, err = kernel.PinDir("balancer", o.Name, o.PinDir); err != nil {
		return err
	}
	if err := o.checkSteer(); err != nil {
		return err
	}
	return o.Limits.Validate()
}

// load loads this build's programs over the pinned maps where those fit, else
// over maps of its own, and brings them into force where that can be done
// without an assignment.
func (l *LB) load() error {
	pinned, err := loadPinned(l.folder.Dir, nil)
	if err != nil {
		return err
	}
	err = l.loadOver(pinned)
	if l.old == nil {
		pinned.close()
	}
	return err
}

func (l *LB) loadOver(pinned *objects) error {
	spec, err := l.spec()
	if err != nil {
		return err
	}
	fresh, err := l.nothingRuns(pinned)
	if err != nil {
		return err
	}
	l.folder.Fresh = fresh
	replacements, fits := adoptable(spec, pinned)
	if fresh {
		replacements, fits = nil, true
	}
	set, err := kernel.Load(spec, "the balancer's programs", replacements, l.log)
	if err != nil {
		return err
	}
	l.set = &objects{Set: set}
	for _, step := range []func() error{l.loadHealth, l.set.writeLayout, l.syncInputs} {
		if err := step(); err != nil {
			return err
		}
	}
	if !fits {
		return l.keepBeside(pinned)
	}
	if err := l.enforce(pinned, fresh); err != nil {
		return err
	}
	if err := l.adoptClock(l.set); err != nil {
		return err
	}
	if l.force, err = readForce(l.set); err != nil {
		return fmt.Errorf("read the tables in force: %w", err)
	}
	if l.written, err = readWritten(l.set, l.force); err != nil {
		return err
	}
	if err := l.readBuckets(); err != nil {
		return fmt.Errorf("read the bucket tables in force: %w", err)
	}
	l.watchWritten()
	l.adopted = !fresh
	if !fresh {
		l.log.Info("adopted what was pinned", "pin_dir", l.folder.Dir, "vips", len(l.force.ranges))
	}
	return l.folder.Settle(l.folder.Holds)
}

// keepBeside leaves packets with the old set until Apply has filled the new one.
func (l *LB) keepBeside(old *objects) error {
	l.old = old
	l.log.Info("what is pinned has another layout or other sizes: a new set is loaded beside it and takes over with the next assignment", "pin_dir", l.folder.Dir)
	layout, err := old.layout()
	if l.oldReadable = err == nil && layout == bpf.Layout; l.oldReadable {
		if l.oldForce, err = readForce(old); err != nil {
			return fmt.Errorf("read the tables in force: %w", err)
		}
	}
	if err := l.adoptClock(old); err != nil || !l.oldReadable {
		return err
	}
	return l.readBuckets()
}

// nothingRuns says that what is pinned never came into force: the process that
// pinned it was killed before it had finished, for meta is pinned last and
// links come after it.
func (l *LB) nothingRuns(pinned *objects) (bool, error) {
	if pinned.Maps[mapMeta] != nil && pinned.Programs[progLB] != nil {
		return false, nil
	}
	running, err := kernel.Running(l.folder.Dir)
	return running == 0, err
}

// enforce pins the set and has its programs where they belong, in the place of those
// that are there.
func (l *LB) enforce(before *objects, fresh bool) error {
	if fresh {
		// Pins before links: an attached program whose maps nobody can find
		// could not be adopted.
		if err := l.set.Pin(l.folder.Dir, mapMeta); err != nil {
			return err
		}
	}
	if err := l.holdAll(before); err != nil {
		return err
	}
	if err := l.set.Pin(l.folder.Dir, mapMeta); err != nil {
		return err
	}
	l.attached = true
	return nil
}

// spec is this build's programs and maps, sized and with their constants.
func (l *LB) spec() (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadLB()
	if err != nil {
		return nil, fmt.Errorf("read the balancer's programs: %w", err)
	}
	if l.jiffies, err = kernel.MeasureJiffies(); err != nil {
		return nil, err
	}
	for name, size := range map[string]int{
		mapLines:  l.o.Limits.ServerLines,
		mapConns:  l.o.Limits.ServerLines,
		mapTables: l.o.Limits.TableEntries &^ 1,
		mapFlows:  flowSets(l.o.Limits.Flows),

		mapRateSources: rates.Sets(l.o.Limits.RateSources),
	} {
		spec.Maps[name].MaxEntries = uint32(size)
	}
	sizeSeats(spec, seatCount(l.o.Limits.Seats))
	if l.o.Steer {
		spec.Maps[mapSteers].MaxEntries = uint32(l.o.Limits.ServerLines)
	}
	addOwnMaps(spec)
	if err := checkSizes(spec); err != nil {
		return nil, err
	}
	c, err := l.constants()
	if err != nil {
		return nil, err
	}
	c["gue6_checksum"] = uint32(0)
	if l.o.GUEChecksum6 {
		c["gue6_checksum"] = uint32(1)
	}
	if l.o.TierAddress.IsValid() {
		c["tier_addr"] = tables.Key{Addr: l.o.TierAddress}.Words()
	}
	askKey := make([]byte, 16)
	_, _ = cryptorand.Read(askKey) // never fails
	c["ask_key"] = askKey
	c["guards"] = uint32(1)
	if l.o.Unguarded {
		c["guards"] = uint32(0)
	}
	c["jiffy_mult"], c["jiffy_shift"] = uint64(l.jiffies.Mult), l.jiffies.Shift
	c["flow_sets"], c["seat_count"] = spec.Maps[mapFlows].MaxEntries, spec.Maps[mapSeats].MaxEntries
	c["rate_sets"] = spec.Maps[mapRateSources].MaxEntries
	return spec, kernel.SetConstants(spec, c)
}

// loadHealth adds the programs that steer health checks, over the same lines.
func (l *LB) loadHealth() error {
	spec, err := bpf.LoadHealth()
	if err != nil {
		return fmt.Errorf("read the health program: %w", err)
	}
	shared := map[string]*ebpf.Map{mapLines: l.set.Maps[mapLines], mapSteers: l.set.Maps[mapSteers]}
	for name, m := range shared {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	spec.Maps[mapCheckLines].MaxEntries = l.set.Maps[mapLines].MaxEntries()
	// A line has one check at a time, and those that ended a while ago.
	pairs := spec.Maps[mapCheckPairs]
	pairs.MaxEntries = max(pairs.MaxEntries, 2*l.set.Maps[mapLines].MaxEntries())
	c, err := l.constants()
	if err != nil {
		return err
	}
	c["stand_in4"], c["stand_in6"] = tables.Key{Addr: standIn4}.Words(), tables.Key{Addr: standIn6}.Words()
	if err := kernel.SetConstants(spec, c); err != nil {
		return err
	}
	health, err := kernel.Load(spec, "the health program", shared, l.log)
	if err != nil {
		return err
	}
	for _, name := range []string{progHealth, progHealthBack} {
		l.set.Programs[name] = health.Programs[name]
	}
	l.checkLines = health.Maps[mapCheckLines]
	for name, m := range health.Maps {
		if name != mapCheckLines {
			m.Close()
		}
	}
	return nil
}

// adoptable pairs the pinned maps with the spec's. fits says that every one
// of them can go on in use. If not, those that do not depend on the sizes of
// others are paired all the same: what packets left behind in them goes on.
func adoptable(spec *ebpf.CollectionSpec, pinned *objects) (replace map[string]*ebpf.Map, fits bool) {
	layout, err := pinned.layout()
	if err != nil || layout != bpf.Layout {
		return nil, false
	}
	replace, misfits := pinned.Adoptable(spec)
	// Steering was switched on or off: a row that is not there spreads by the hash,
	// which breaks nothing.
	fits = !slices.ContainsFunc(misfits, func(name string) bool { return name != mapSteers })
	if !fits {
		// What the new set fills itself, or what names lines of the old one.
		for _, name := range []string{".data." + mapVIPs, ".data." + mapControl, mapTables, mapLines, mapConns, mapSteers, mapMeta} {
			delete(replace, name)
		}
	}
	return replace, fits
}

// Close lets go of everything; it stays pinned and attached.
func (l *LB) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release()
	return nil
}

func (l *LB) release() {
	if l.checkLines != nil {
		l.checkLines.Close()
	}
	l.set.close()
	l.old.close()
	l.set, l.old, l.attached = nil, nil, false
	if l.hops != nil {
		l.hops.Close()
	}
	if l.ns.IsOpen() {
		l.ns.Close()
	}
	if l.netlink != nil {
		l.netlink.Close()
	}
	l.asker.Close()
	l.folder.Close()
}

// PinDir is the folder of bpffs that holds this balancer.
func (l *LB) PinDir() string { return filepath.Clean(l.o.PinDir) }
