package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/topology"
)

// Follower follows the routing of the kernel of one network namespace:
//
//	netlink's notifications ─▶ parts of the picture that are out of date
//	  these are read anew    ─▶ translate ─▶ Tables ─▶ Plane.Apply
//
// Nothing is computed from notifications themselves, so that one which is lost
// costs a moment and no more: the kernel tells nothing of IPv4 routes that go
// with their device, for instance.
type Follower struct {
	log     *slog.Logger
	kernel  *rtnetlink
	inputs  map[string]bool
	keep    func([]Number) error
	changed chan struct{}

	mu      sync.Mutex
	stale   marks
	numbers *numbering
	picture picture
	silent  map[HopID]bool
	view    View
	// unattached: the program is not on all devices. unkept: numbers were given
	// since Keep last remembered them.
	unattached, unkept bool
}

// FollowOptions say whose routing is followed.
type FollowOptions struct {
	Fabric *topology.Fabric
	Node   int // of Fabric: this router
	// Interfaces are the devices that packets may come in by, by name; empty:
	// all that are Ethernet.
	Interfaces []string
	// Numbers are the port numbers that an earlier run gave by itself, and Keep
	// remembers those of this one.
	Numbers []Number
	Keep    func([]Number) error
	Log     *slog.Logger
}

// View is what was put in force last.
type View struct {
	Tables Tables
	// Names and MTUs are devices', by index.
	Names map[int]string
	MTUs  map[int]int
	// Warnings are what an operator should know, a line each with the remedy.
	Warnings []string
	// Err is why what the kernel has is not in force; empty: it is.
	Err string
	// Changes is how often tables were put in force, Changed when last.
	Changes uint64
	Changed time.Time
}

const (
	// refreshEvery is how often neighbours are looked at and confirmed: packets
	// that XDP forwards do not confirm them.
	refreshEvery = 2 * time.Second
	// resyncEvery is how often all is read anew, whatever was heard.
	resyncEvery = 30 * time.Second
	// settle collects a burst of notifications; while changes go on, each
	// reading waits twice as long as the one before, up to settleMost.
	settle     = 5 * time.Millisecond
	settleMost = 320 * time.Millisecond
)

// NewFollower belongs to the network namespace of the calling thread. It
// refuses one that routes by rules other than the default ones.
func NewFollower(o FollowOptions) (*Follower, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	f := &Follower{log: o.Log, kernel: k, keep: o.Keep, changed: make(chan struct{}, 1),
		numbers: newNumbering(o.Fabric, o.Node, o.Numbers), silent: map[HopID]bool{}}
	f.inputs = namesOf(o.Interfaces)
	for which := range parts {
		if err = f.picture.read(k, which); err != nil {
			break
		}
	}
	if err == nil {
		err = f.fits()
	}
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return f, nil
}

// namesOf is a list as a set; nil: all.
func namesOf(interfaces []string) map[string]bool {
	if len(interfaces) == 0 {
		return nil
	}
	names := map[string]bool{}
	for _, name := range interfaces {
		names[name] = true
	}
	return names
}

// names and MTUs of devices, by index.
func (p *picture) names() (names map[int]string, mtus map[int]int) {
	names, mtus = map[int]string{}, map[int]int{}
	for index, l := range p.links {
		names[index], mtus[index] = l.name, l.mtu
	}
	return names, mtus
}

// fits says why this namespace cannot be followed.
func (f *Follower) fits() error {
	if others := f.picture.otherRules(); len(others) > 0 {
		return errors.New(rulesRemedy(others))
	}
	for _, name := range slices.Sorted(maps.Keys(f.inputs)) {
		for _, l := range f.picture.links {
			if l.name != name {
				continue
			}
			if _, _, ok := f.picture.ethernet(l); !ok {
				return fmt.Errorf("interface %s is no Ethernet device that XDP can forward from (%s): name the devices below it, or leave it to the kernel", name, l.what())
			}
		}
	}
	return nil
}

// what kind of device it is, for people.
func (l link) what() string {
	switch {
	case l.master != 0:
		return "it belongs to a bridge, bond or VRF"
	case l.kind != "":
		return "a " + l.kind
	case l.flags&unix.IFF_LOOPBACK != 0:
		return "the loopback"
	}
	return "no Ethernet"
}

// Close lets go of netlink; Run must have ended.
func (f *Follower) Close() error { return f.kernel.close() }

// View is what is in force.
func (f *Follower) View() View {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view
}

// Renumber goes by another version of the fabric from now on: links' port
// numbers, with the same radix.
func (f *Follower) Renumber(fabric *topology.Fabric, node int) {
	f.mu.Lock()
	f.numbers = newNumbering(fabric, node, f.numbers.given)
	f.stale[partRules] = true // one that is read quickly: all is translated anew
	f.mu.Unlock()
	f.tell()
}

// Run puts what the kernel has in force by apply, and again when it changes,
// until ctx ends. It fails if it cannot watch, or if the first tables cannot be
// put in force; later failures stand in the View and are tried again.
func (f *Follower) Run(ctx context.Context, apply func(Tables) error) error {
	if err := f.kernel.Watch(ctx, groups, f.heard, f.lost); err != nil {
		return err
	}
	err := f.kernel.watchFeatures(ctx, func() { f.outdate(partFeatures); f.tell() })
	if err != nil {
		return err
	}
	f.outdate(allParts...) // something may have changed before we watched
	if err := f.follow(apply); err != nil {
		return err
	}
	refresh, resync := time.NewTicker(refreshEvery), time.NewTicker(resyncEvery)
	defer refresh.Stop()
	defer resync.Stop()
	wait, last := settle, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-refresh.C:
			f.outdate(partNeighbours, partFeatures)
			f.attachAgain()
		case <-resync.C:
			f.outdate(allParts...)
		case <-f.changed:
			if time.Since(last) < 2*settleMost {
				wait = min(2*wait, settleMost)
			} else {
				wait = settle
			}
			if !pause(ctx, wait) {
				return nil
			}
			last = time.Now()
		}
		if err := f.follow(apply); err != nil {
			f.log.Error("the kernel's routes could not be put in force; what was there goes on, and it is tried again", "error", err)
			f.outdate(allParts...)
			if !pause(ctx, time.Second) {
				return nil
			}
			f.tell()
		}
	}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// attachAgain has everything put in force once more, where the program could
// not be put on all devices.
func (f *Follower) attachAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stale[partRules] = f.stale[partRules] || f.unattached
}

// marks are the parts that are out of date.
type marks [parts]bool

// tables: more than neighbours and features, which are looked at often, may
// have changed.
func (m marks) tables() bool {
	m[partNeighbours], m[partFeatures] = false, false
	return m != marks{}
}

var allParts = []part{partLinks, partForwarding, partNexthops, partRoutes4, partRoutes6, partNeighbours, partRules, partFeatures}

// outdate marks what has to be read anew.
func (f *Follower) outdate(which ...part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range which {
		f.stale[p] = true
	}
}

// tell wakes Run up.
func (f *Follower) tell() {
	select {
	case f.changed <- struct{}{}:
	default: // it is going to look
	}
}

// heard marks what a notification is about.
func (f *Follower) heard(m netlink.Message) {
	switch which := partOf(m); which {
	case parts:
		return
	case partNeighbours:
		if !f.concerns(m) {
			return
		}
		f.outdate(which)
	case partLinks:
		// Routes and nexthops go with their device, and not all of them with a
		// notification.
		f.outdate(partLinks, partForwarding, partNexthops, partRoutes4, partRoutes6, partFeatures)
	case partNexthops:
		f.outdate(partNexthops, partRoutes4, partRoutes6)
	default:
		f.outdate(which)
	}
	f.tell()
}

// concerns: of the many notices of neighbours, those that change where packets
// go.
func (f *Follower) concerns(m netlink.Message) bool {
	n, err := parseNeighbour(m)
	if err != nil {
		return true
	}
	if m.Header.Type == unix.RTM_DELNEIGH {
		n.state = unix.NUD_NONE
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.picture.neighbours[n.id]
	return n.valid() != was.valid() || n.valid() && n.mac != was.mac || n.state&unix.NUD_FAILED != 0 && !f.silent[n.id]
}

// lost: more changed than the socket had room for.
func (f *Follower) lost(err error) {
	f.log.Warn("notifications of the kernel were lost: reading everything anew", "error", err)
	f.outdate(allParts...)
	f.tell()
}

// follow reads what is out of date and puts it in force.
func (f *Follower) follow(apply func(Tables) error) error {
	f.mu.Lock()
	stale := f.stale
	f.stale = marks{}
	fresh := f.picture
	f.mu.Unlock()
	var err error
	for which := range parts {
		if stale[which] && err == nil {
			err = fresh.read(f.kernel, which)
		}
	}
	if err == nil {
		f.mu.Lock()
		features := fresh.features.equal(f.picture.features)
		neighbours := fresh.sameNeighbours(&f.picture)
		f.picture = fresh
		heard := f.listen()
		same := !stale.tables() && neighbours && features && !heard && f.view.Changes > 0 && f.view.Err == ""
		f.mu.Unlock()
		if !same {
			err = f.enforce(apply)
		}
		f.confirm()
	}
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.view.Err = err.Error()
	}
	return err
}

// enforce translates the picture and puts it in force.
func (f *Follower) enforce(apply func(Tables) error) error {
	f.mu.Lock()
	tables, warnings, numbered := f.picture.translate(f.numbers, f.inputs, f.silent)
	numbers := slices.Clone(f.numbers.given)
	warnings = append(append(warnings, f.missing()...), f.unfinished(tables.Devices)...)
	f.mu.Unlock()
	if f.unkept = f.unkept || numbered; f.unkept {
		// Before they are in force: whoever reads them may use them.
		err := f.keep(numbers)
		if f.unkept = err != nil; f.unkept {
			warnings = append(warnings, fmt.Sprintf("port numbers are not remembered over a restart: %v; it is tried again", err))
		}
	}
	err := apply(tables)
	var attach *AttachError
	if errors.As(err, &attach) && (f.inputs == nil || f.View().Changes > 0) {
		warnings = append(warnings, fmt.Sprintf("%v; packets that come in there are left to the kernel, which knows no selectors, and it is tried again", attach))
	} else if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unattached = attach != nil
	for _, text := range warnings {
		if !slices.Contains(f.view.Warnings, text) {
			f.log.Warn(text)
		}
	}
	names, mtus := f.picture.names()
	f.view = View{Tables: tables, Names: names, MTUs: mtus, Warnings: warnings, Changes: f.view.Changes + 1, Changed: time.Now()}
	return nil
}

// missing says which of the interfaces that shall be routed from are not there.
func (f *Follower) missing() (warnings []string) {
	there := map[string]bool{}
	for _, l := range f.picture.links {
		there[l.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(f.inputs)) {
		if !there[name] {
			warnings = append(warnings, fmt.Sprintf("interface %s does not exist: it is used once it does; correct --interface or the router's interfaces in fabric.yaml if it never will", name))
		}
	}
	return warnings
}
