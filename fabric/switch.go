package fabric

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/wire"
)

// Switch keeps the kernel as Apply and Health say. Its methods may be called
// from several goroutines.
type Switch struct {
	o   Options
	log *slog.Logger

	mu     sync.Mutex
	kernel kernel
	links  *links
	health *health
	// desired is what Apply last put in force; nil: nothing yet.
	desired *Desired
	rows    *buckets.Effective
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
// namespace; nothing is changed before Apply.
func Open(o Options) (*Switch, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	s, err := open(o, k)
	if err != nil {
		k.Close()
	}
	return s, err
}

func open(o Options, k kernel) (*Switch, error) {
	if o.AnnounceTable == 0 {
		o.AnnounceTable = AnnounceTable
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Switch{o: o, log: o.Log, kernel: k, health: newHealth(o.Health), drained: o.Drained, lingering: map[wire.MAC]time.Time{}}
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
	return s.kernel.Close()
}

// Apply makes the kernel as d says: forward, or back to how it was with an
// error. The first Apply after Open adopts what is installed: nothing that is
// right changes, and until a first round of Health nothing moves for health.
// A locked switch refuses: it is to be unlocked first. Without VIPs nothing of
// ours stays but the sysctls.
func (s *Switch) Apply(d Desired) error {
	if len(d.VIPs) == 0 {
		d.Table, d.Servers = &buckets.Table{}, nil
	} else if err := d.check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock.on {
		return fmt.Errorf("the switch is locked (%s): unlock it first", s.lock.reason)
	}
	if s.desired != nil && s.desired.serves() && d.serves() && s.desired.Table.Len() != d.Table.Len() {
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
	if err == nil && (before.desired == nil || !before.desired.serves()) {
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
	if s.byBucket || !s.desired.serves() {
		return
	}
	if err := verifyHash(s.kernel, s.desired.VIPs, s.desired.Seed, s.desired.Table.Len()); err != nil {
		s.log.Warn("what agents say of single buckets is not used: chains end when a server has no connection at all", "err", err)
		return
	}
	s.byBucket = true
}

// serves: there is a VIP.
func (d *Desired) serves() bool { return len(d.VIPs) > 0 }

// snapshot is what a change that fails goes back to.
type snapshot struct {
	desired *Desired
	rows    *buckets.Effective
	due     time.Time
	drained bool
	lock    lock

	used      map[wire.MAC]bool
	lingering map[wire.MAC]time.Time
}

func (s *Switch) snapshot() snapshot {
	before := snapshot{desired: s.desired, due: s.due, drained: s.drained, lock: s.lock, used: s.used, lingering: maps.Clone(s.lingering)}
	if s.rows != nil {
		before.rows = buckets.Restore(s.rows.Generation, append([]uint16(nil), s.rows.Current...), append([]uint32(nil), s.rows.Since...), append([][buckets.Chain]uint16(nil), s.rows.Previous...))
	}
	return before
}

func (s *Switch) restore(before snapshot) {
	s.desired, s.rows, s.due, s.drained, s.lock = before.desired, before.rows, before.due, before.drained, before.lock
	s.used, s.lingering = before.used, before.lingering
	s.fixed = objects{}
}

// adopt takes over what an earlier run installed.
func (s *Switch) adopt(f *found) error {
	if !s.desired.serves() {
		s.rows = new(buckets.Effective)
		return nil
	}
	ours := false
	for _, v := range f.objects[kindGroup] {
		ours = ours || v.foreign&notOurProtocol == 0
	}
	if !ours {
		return s.conflicts(f)
	}
	for k, v := range f.objects[kindGroup] {
		if n := len(v.members) / 4; v.foreign == 0 && n != s.desired.Table.Len() {
			return fmt.Errorf("buckets: %d, but nexthop group %#x has %d members, and another number moves every connection: set buckets to %d, or take away what is installed (fairlead unload)", s.desired.Table.Len(), k.id, n, n)
		}
	}
	rows, any := adopted(s.desired.Table, f.objects, seconds(s.o.Now()))
	if any {
		s.rows = rows
		s.adopting = s.o.Now().Add(adoptionTime)
	}
	for k := range f.objects[kindBridge] {
		s.lingering[k.mac] = s.o.Now().Add(lingerTime)
	}
	s.plan.announce = !s.drained && len(f.objects[kindAnnounced]) > 0
	return nil
}

// conflicts refuses to begin where somebody else has something in our place.
func (s *Switch) conflicts(f *found) error {
	for kind := range kinds {
		for k, v := range f.objects[kind] {
			switch {
			case kind == kindBridge || v.foreign&notOurProtocol == 0:
			case kind == kindNexthop || kind == kindGroup:
				return fmt.Errorf("nexthop id %d (%#x) is somebody else's: take it away (ip nexthop del id %d)", k.id, k.id, k.id)
			case kind == kindNeighbour:
				return fmt.Errorf("neighbour %s on %s is somebody else's, and a virtual nexthop's address: take it away (ip neigh del %s dev %s), or give the servers a bridge of their own", k.addr, s.o.Bridge, k.addr, s.o.Bridge)
			default:
				return fmt.Errorf("there is a route to %s in table %d already that is somebody else's: take it away (ip route del %s table %d)", k.addr, k.table, k.addr, k.table)
			}
		}
	}
	return nil
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
		for _, st := range ours(difference(f.objects, s.have)) {
			k := st.key.kind
			is, there := f.objects[k][st.key]
			s.counts.corrections[k.String()]++
			s.log.Warn("somebody else changed what is this switch's; putting it right", "shall_be", st.String(), "there", there, "is", is.String())
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
	if !s.desired.serves() {
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

// settle brings the rows up to date.
func (s *Switch) settle() {
	now := s.o.Now()
	if !s.desired.serves() {
		s.rows, s.due, s.adopting = new(buckets.Effective), time.Time{}, time.Time{}
		return
	}
	if !s.adopting.IsZero() {
		if !s.healthy && now.Before(s.adopting) {
			s.due = s.adopting
			return
		}
		s.adopting = time.Time{}
	}
	if s.rows == nil {
		s.rows = new(buckets.Effective)
	}
	due, _ := s.rows.Update(s.desired.Table, s.view(seconds(now)))
	s.due = time.Time{}
	if due != 0 {
		s.due = time.Unix(int64(due), 0)
	}
}

// view is what the rows go by besides the table.
func (s *Switch) view(now uint32) buckets.View {
	v := buckets.View{Now: now, ChainTime: uint32(s.desired.ChainTime / time.Second), Fewest: true}
	if !s.endAfter.IsZero() {
		v.EndAfter = uint32(min(max(s.endAfter.Unix(), 0), math.MaxUint32))
	}
	by := map[uint16]*hostHealth{}
	names := map[uint16]string{}
	for _, one := range s.desired.Servers {
		v.Servers = append(v.Servers, buckets.Server{Number: one.Number, Weight: one.Weight})
		by[one.Number], names[one.Number] = s.health.servers[one.Name], one.Name
	}
	out := func(number uint16) bool {
		h := by[number]
		if h == nil {
			return false
		}
		if s.lock.on {
			return s.lock.out[names[number]]
		}
		return h.state == Down || h.state == Disabled
	}
	v.Down = func(number uint16) bool { return out(number) && s.health.dead(by[number]) }
	v.Disabled = func(number uint16) bool { return out(number) && !s.health.dead(by[number]) }
	n := s.desired.Table.Len()
	v.Owns = func(number uint16, bucket int) (owned bool, at uint32) {
		if h := by[number]; h != nil && !h.counted.IsZero() {
			return h.owns(bucket, n, s.byBucket), seconds(h.counted)
		}
		return false, 0
	}
	return v
}

// Health takes one round of polls, by server's name, and repoints buckets
// accordingly. Servers that are missing keep their state.
func (s *Switch) Health(reports map[string]Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	for name, r := range reports {
		s.health.take(name, r, now)
	}
	if s.desired == nil || !s.desired.serves() {
		return nil
	}
	first := !s.healthy && s.health.known()
	s.healthy = s.healthy || first
	if fallen, locks := s.health.cascade(now); locks && !s.lock.on {
		s.lockDown(fallen, now)
	}
	if s.lock.on && s.o.Health.LockKeep {
		return nil
	}
	before := s.snapshot()
	s.settle()
	err := s.change()
	if err != nil {
		s.restore(before)
	}
	return err
}

// SetEndAfter says from when on a server's report that it has no connections
// ends chains: once all switches go by the newest table. Zero: no bound; far
// in the future: no report does. It takes effect with the next Health.
func (s *Switch) SetEndAfter(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAfter = t
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
