package swtch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/tables/effective"
	"github.com/fairlead/fairlead/wire"
)

// Switch keeps the kernel as Apply and Health say. Its methods may be called
// from several goroutines.
type Switch struct {
	o   Options
	log *slog.Logger

	mu     sync.Mutex
	kernel kernel
	claim  io.Closer // of the bridge
	links  *links
	health *health
	// desired is what Apply last put in force; nil: nothing yet.
	desired *tables.SwitchPlan
	rows    *effective.Table
	// due is when time alone changes rows; zero: never.
	due time.Time
	// adopting: rows are what was installed before this daemon started, and
	// stay so until a first round of health (or adoptionTime) is over.
	adopting time.Time
	plan     plan
	// have is what the kernel has as far as we know: what was last read, and
	// what was changed since.
	have objects
	// installed: have was put there by us, so that what differs from it was
	// changed by somebody else.
	installed bool
	// fixed are the plan's objects that rows do not change; nil entries: to
	// be made anew.
	fixed objects
	// used are the MACs in use, lingering those that were until then.
	used      map[wire.MAC]bool
	lingering map[wire.MAC]time.Time
	drained   bool
	healthy   bool // a first round of health is over
	endAfter  time.Time
	byBucket  bool      // this kernel hashes as the model does
	asked     time.Time // when servers were last asked where they are

	lock   lock
	counts counts
}

type counts struct {
	corrections        map[string]uint64
	repointed          uint64
	lastChange         time.Duration
	retries, rollbacks uint64
	err                string
	portless           []string
}

const (
	// adoptionTime bounds the wait for a first round of health.
	adoptionTime = 10 * time.Second
	// askEvery is how often the kernel is to see whether servers are where
	// they were.
	askEvery = 15 * time.Second
	// lingerTime is for how long bridge entries stay that no nexthop leads to
	// any more, for frames that are under way among the hosts.
	lingerTime = 2 * time.Second
)

// Open looks for the bridge and opens netlink in the caller's network
// namespace; nothing is changed before Apply. A bridge has one Switch at a
// time: two would take each other's nexthops for their own, and change them
// without end.
func Open(o Options) (*Switch, error) {
	claim, err := claim(o.Bridge)
	if err != nil {
		return nil, err
	}
	k, err := openKernel()
	if err != nil {
		return nil, errors.Join(err, claim.Close())
	}
	s, err := open(o, k)
	if err != nil {
		return nil, errors.Join(err, k.Close(), claim.Close())
	}
	s.claim = claim
	return s, nil
}

// claim is held while a bridge is a Switch's. Abstract Unix addresses are each
// network namespace's own, and go with the process.
func claim(bridge string) (io.Closer, error) {
	l, err := net.Listen("unix", "@fairlead/switch/"+bridge)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("another process has bridge %s as its switch: stop it (ss -xlp shows it as @fairlead/switch/%s)", bridge, bridge)
	}
	if err != nil {
		return nil, fmt.Errorf("claim bridge %s: %w", bridge, err)
	}
	return l, nil
}

func open(o Options, k kernel) (*Switch, error) {
	o.AnnounceTable = cmp.Or(o.AnnounceTable, AnnounceTable)
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Switch{o: o, log: o.Log, kernel: k, health: newHealth(o.Health), drained: o.Drained, lingering: map[wire.MAC]time.Time{}, lock: lockOf(o.Locked)}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.counts.corrections = map[string]uint64{}
	l, err := readLinks(k, o.Bridge)
	if err != nil {
		return nil, err
	}
	s.links = l
	return s, l.check(o.Bridge)
}

// Close closes netlink; the kernel keeps forwarding.
func (s *Switch) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.kernel.Close()
	if s.claim != nil {
		err = errors.Join(err, s.claim.Close())
	}
	return err
}

// Apply makes the kernel as d says: forward, or back to how it was with an
// error. The first Apply after Open adopts what is installed: nothing that is
// right changes, and until a first round of Health nothing moves for health.
// A locked switch takes it, too: what is locked is health alone. Without VIPs
// nothing of ours stays but the sysctls.
func (s *Switch) Apply(d tables.SwitchPlan) error {
	if len(d.VIPs) == 0 {
		d.Table, d.Servers = &buckets.Table{}, nil
	} else if err := d.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desired != nil && s.desired.Serves() && d.Serves() && s.desired.Table.Len() != d.Table.Len() {
		return fmt.Errorf("buckets: %d, but this switch has %d nexthops, and another number moves every connection: remove what is installed first", d.Table.Len(), s.desired.Table.Len())
	}
	before := s.snapshot()
	s.desired = &d
	names := make([]string, len(d.Servers))
	for i := range d.Servers {
		names[i] = d.Servers[i].Name
	}
	s.health.keep(names)
	s.fixed = objects{}
	f, err := s.look()
	if err == nil && (before.desired == nil || !before.desired.Serves()) {
		err = s.adopt(f)
	}
	if err == nil {
		s.settle()
		err = s.change()
	}
	if err != nil {
		s.restore(before)
		return err
	}
	s.compareHash()
	return nil
}

// compareHash finds out whether agents may say what they own by bucket.
func (s *Switch) compareHash() {
	if s.byBucket || !s.desired.Serves() {
		return
	}
	if err := verifyHash(s.kernel, s.desired.VIPs, s.desired.Seed, s.desired.Table.Len()); err != nil {
		s.log.Warn("what agents say of single buckets is not used: chains end when a server has no connection at all", "err", err)
		return
	}
	s.byBucket = true
}

// snapshot is what a change that fails goes back to.
type snapshot struct {
	desired *tables.SwitchPlan
	rows    *effective.Table
	due     time.Time
	drained bool
	lock    lock

	// servers are those that health knows, not what it knows of them.
	servers  map[string]*hostHealth
	adopting time.Time
	announce bool
	ports    map[uint16]uint32

	used      map[wire.MAC]bool
	lingering map[wire.MAC]time.Time
}

func (s *Switch) snapshot() snapshot {
	before := snapshot{desired: s.desired, due: s.due, drained: s.drained, lock: s.lock, used: s.used, lingering: maps.Clone(s.lingering),
		servers: s.health.servers, adopting: s.adopting, announce: s.plan.announce, ports: s.plan.ports}
	if s.rows != nil {
		before.rows = s.rows.Clone()
	}
	return before
}

func (s *Switch) restore(before snapshot) {
	s.desired, s.rows, s.due, s.drained, s.lock = before.desired, before.rows, before.due, before.drained, before.lock
	s.used, s.lingering = before.used, before.lingering
	s.health.servers, s.adopting, s.plan.announce, s.plan.ports = before.servers, before.adopting, before.announce, before.ports
	s.fixed = objects{}
}

func seconds(t time.Time) uint32 { return uint32(t.Unix()) }

// look reads the kernel, sets the sysctls, and counts what somebody else
// changed since the last look.
func (s *Switch) look() (*found, error) {
	l, err := readLinks(s.kernel, s.o.Bridge)
	if err != nil {
		return nil, err
	}
	s.links = l
	if err := l.check(s.o.Bridge); err != nil {
		s.installed = false // the kernel took all of it away
		return nil, err
	}
	if err := s.hashAlike(); err != nil {
		return nil, err
	}
	f, err := s.read()
	if err != nil {
		return nil, err
	}
	s.findPorts(f)
	if s.installed {
		changed := ours(difference(f.objects, s.have))
		for _, st := range changed {
			s.counts.corrections[st.key.kind.String()]++
		}
		if len(changed) > 0 { // one line: a flush may take a thousand away
			first := changed[0]
			is, there := f.objects[first.key.kind][first.key]
			s.log.Warn("somebody else changed what is this switch's; putting it right", "objects", len(changed), "first_shall_be", first.String(), "there", there, "is", is.String())
		}
	}
	s.have = f.objects
	return f, nil
}

func (s *Switch) read() (*found, error) {
	return read(s.kernel, s.links.bridge, s.desired.VIPs, uint32(s.o.AnnounceTable))
}

// hashAlike sets the sysctls.
func (s *Switch) hashAlike() error {
	if !s.desired.Serves() {
		return nil
	}
	for _, setting := range Settings(s.desired.Seed) {
		is, err := s.kernel.sysctl(setting.path())
		if err != nil {
			return err
		}
		if setting.equal(is) {
			continue
		}
		if s.installed {
			s.counts.corrections["sysctl"]++
			s.log.Warn("somebody else changed what is this switch's; putting it right", "sysctl", setting.Name, "shall_be", setting.Value, "is", is)
		}
		if err := s.kernel.setSysctl(setting.path(), setting.Value); err != nil {
			return err
		}
	}
	return nil
}

// findPorts finds each server's port, keeping the last one known. Servers whose
// ports are not configured are asked for, now and then also where they are
// known: one that was moved may have nothing to say by itself.
func (s *Switch) findPorts(f *found) {
	ports := map[uint16]uint32{}
	s.counts.portless = nil
	now := s.o.Now()
	askAll := now.Sub(s.asked) >= askEvery
	if askAll {
		s.asked = now
	}
	for _, one := range s.desired.Servers {
		port := portOf(one, s.o.Ports, s.links, f, s.plan.ports[one.Number])
		if port != 0 {
			ports[one.Number] = port
		} else {
			s.counts.portless = append(s.counts.portless, one.Name)
		}
		if _, configured := s.o.Ports[one.Name]; configured || !one.Address.IsValid() || port != 0 && !askAll {
			continue
		}
		if err := solicit(s.kernel, s.links.bridge, one.Address); err != nil {
			s.log.Debug("cannot ask for a server's address", "server", one.Name, "err", err)
		}
	}
	s.plan.ports = ports
}

// Drain withdraws the announced routes, or announces them again; forwarding
// stays. changes are lines for people.
func (s *Switch) Drain(drained bool) (changes []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained == drained {
		return nil, nil
	}
	before := s.snapshot()
	s.drained = drained
	if s.desired != nil {
		if err := s.change(); err != nil {
			s.restore(before)
			return nil, err
		}
	}
	n := 0
	if s.desired != nil {
		n = len(s.desired.VIPs)
	}
	if drained {
		return []string{fmt.Sprintf("%d routes withdrawn from table %d; packets that still come are forwarded", n, s.o.AnnounceTable)}, nil
	}
	return []string{fmt.Sprintf("%d routes announced in table %d", n, s.o.AnnounceTable)}, nil
}

// Remove takes everything of ours out of the kernel but the sysctls.
func (s *Switch) Remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var vips = s.plan.vips
	f, err := read(s.kernel, s.links.bridge, vips, uint32(s.o.AnnounceTable))
	if err != nil {
		return err
	}
	s.desired, s.rows, s.fixed, s.lingering = nil, nil, objects{}, map[wire.MAC]time.Time{}
	s.installed, s.have = false, objects{}
	steps := ours(difference(f.objects, objects{}))
	err = s.kernel.execute(messages(steps))
	if f, again := read(s.kernel, s.links.bridge, vips, uint32(s.o.AnnounceTable)); again != nil {
		err = errors.Join(err, again)
	} else if left := ours(difference(f.objects, objects{})); len(left) > 0 {
		err = errors.Join(err, fmt.Errorf("%d objects are left, the first: %s", len(left), left[0]))
	} else {
		err = nil // what was gone before it was taken away
	}
	return err
}
