package paths

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Scheduler gives elephants (long flows) the least loaded of their paths, so
// that few share a link (the paper, section 4.2.1). Several goroutines may use it.
//
// A link's load, for a flow that may come, is (flows + 1) / free, where free is
// the link's capacity less its background: what was measured there and is not
// of placed flows. That is the inverse of the flow's fair share. The best path
// is the one whose most loaded link has the least load; of several, the one
// with the least sum; of several, any. Links that all paths share count for
// neither.
type Scheduler struct {
	net *Net

	mu     sync.Mutex
	last   uint64 // ID
	placed map[uint64]*Placement
	flows  map[pathsel.Flow]uint64
	links  []linkLoad // by link, twice: by the end that is entered
	usual  float64    // capacity of links that state none

	// Of the search that is under way: how many of all its paths pass a link
	// (as links), and which of these are not 0.
	through []uint64
	counted []int
	all     uint64
}

// linkLoad is a link in one direction.
type linkLoad struct {
	ids        map[uint64]bool // placements that pass it
	measured   float64         // bit/s
	background float64
	until      time.Time // zero: nothing was measured
}

// Order asks for a placement.
type Order struct {
	From, To Place
	Rules    Rules
	// Ports asks for fields that lead over the path; nil: the path is all.
	// Flows that are placed already are not given again.
	Ports  *Request
	Until  time.Time // when it ends by itself; zero: never
	Owner  string    // whoever asked, for those who look
	Random uint64    // decides among what is equally good
}

// Placement is one elephant and the path it was given.
type Placement struct {
	ID    uint64
	Order Order
	Path  Path
	Flow  pathsel.Flow // invalid Src: no ports were asked for
}

// NewScheduler begins with no flows.
func NewScheduler(n *Net) *Scheduler {
	s := &Scheduler{net: n, placed: map[uint64]*Placement{}, flows: map[pathsel.Flow]uint64{}, links: make([]linkLoad, 2*len(n.fabric.Links)), through: make([]uint64, 2*len(n.fabric.Links))}
	for i := range n.fabric.Links {
		s.usual = max(s.usual, float64(n.fabric.Links[i].Capacity))
	}
	if s.usual == 0 {
		s.usual = 1 // nobody states one: only ratios count
	}
	return s
}

// Place gives a flow a path, and fields that lead over it if they are asked
// for: where the best path has none that are free, the next best one that has.
// Errors are those of Routes and Ports.
func (s *Scheduler) Place(o Order) (Placement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.find(o)
	if err != nil {
		return Placement{}, err
	}
	s.last++
	p.ID = s.last
	s.add(p)
	return *p, nil
}

// Again gives a placed flow the path that is best now, any of several equally
// good ones, in the way of Place; moved says whether that is another path. Who
// places all flows again a few times comes near to the best for all.
func (s *Scheduler) Again(id, random uint64) (p Placement, moved bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.placed[id]
	if old == nil {
		return p, false, unplaced(id)
	}
	s.remove(old)
	o := old.Order
	o.Random = random
	now, err := s.find(o)
	if err != nil {
		s.add(old)
		return p, false, err
	}
	now.ID = id
	if slices.Equal(now.Path.Hops, old.Path.Hops) {
		now.Flow = old.Flow
	}
	s.add(now)
	return *now, !slices.Equal(now.Path.Hops, old.Path.Hops), nil
}

func unplaced(id uint64) error {
	return fmt.Errorf("flow %d is %w; `fairlead path flows` lists those that are", id, ErrUnplaced)
}

// find is the placement for an order, without an ID.
func (s *Scheduler) find(o Order) (*Placement, error) {
	from, to, err := s.net.placesOf(&o)
	if err != nil {
		return nil, err
	}
	routes, err := s.net.Routes(from, to, o.Rules)
	if err != nil {
		return nil, err
	}
	p := &Placement{Order: o}
	if !s.best(routes, o.Ports != nil, o.Random, &p.Path) {
		// None that can be selected: the first says why.
		routes.At(0, &p.Path)
	}
	if o.Ports == nil {
		return p, nil
	}
	r := *o.Ports
	asked := r.Taken
	r.Random = o.Random
	r.Taken = func(f pathsel.Flow) bool {
		_, placed := s.flows[f]
		return placed || asked != nil && asked(f)
	}
	if p.Flow, err = s.net.Ports(&p.Path, r); err != nil {
		err = s.next(routes, p, r, err)
	}
	return p, err
}

// placesOf are the places of an order, under the addresses that its flow shall have.
func (n *Net) placesOf(o *Order) (from, to Place, err error) {
	if o.Ports == nil {
		return o.From, o.To, nil
	}
	if from, err = n.At(o.From, o.Ports.Src); err != nil {
		return from, to, fmt.Errorf("source %w", err)
	}
	if to, err = n.At(o.To, o.Ports.Dst); err != nil {
		return from, to, fmt.Errorf("destination %w", err)
	}
	return from, to, nil
}

func (s *Scheduler) add(p *Placement) {
	s.placed[p.ID] = p
	if p.Flow.Src.IsValid() {
		s.flows[p.Flow] = p.ID
	}
	for _, h := range p.Path.Hops {
		l := s.link(h)
		if l.ids == nil {
			l.ids = map[uint64]bool{}
		}
		l.ids[p.ID] = true
	}
}

func (s *Scheduler) remove(p *Placement) {
	delete(s.placed, p.ID)
	if s.flows[p.Flow] == p.ID {
		delete(s.flows, p.Flow)
	}
	for _, h := range p.Path.Hops {
		delete(s.link(h).ids, p.ID)
	}
}

func (s *Scheduler) link(h Hop) *linkLoad { return &s.links[2*h.Link+h.From] }

// Release takes the flow off its links. The error wraps ErrUnplaced.
func (s *Scheduler) Release(id uint64) (Placement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.placed[id]
	if p == nil {
		return Placement{}, unplaced(id)
	}
	s.remove(p)
	return *p, nil
}

// Renew changes when the flow ends by itself.
func (s *Scheduler) Renew(id uint64, until time.Time) (Placement, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.placed[id]
	if p == nil {
		return Placement{}, unplaced(id)
	}
	p.Order.Until = until
	return *p, nil
}

// Expire takes off flows and measurements whose time is over, and returns those
// flows.
func (s *Scheduler) Expire(now time.Time) (ended []Placement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	for _, p := range s.placed {
		if over(p.Order.Until) {
			s.remove(p)
			ended = append(ended, *p)
		}
	}
	for i := range s.links {
		if l := &s.links[i]; over(l.until) {
			l.measured, l.background, l.until = 0, 0, time.Time{}
		}
	}
	return ended
}

// Load says how much was measured on a link in one direction, in bit/s, all
// traffic together. It counts until the time given. It fails for a link whose
// capacity the file does not state.
func (s *Scheduler) Load(h Hop, bitsPerSecond float64, until time.Time) error {
	if err := s.Measurable(h, bitsPerSecond); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.link(h)
	l.measured, l.until, l.background = bitsPerSecond, until, bitsPerSecond
	for id := range l.ids {
		l.background -= s.share(s.placed[id])
	}
	l.background = max(l.background, 0)
	return nil
}

// Measurable says why Load would not take this.
func (s *Scheduler) Measurable(h Hop, bitsPerSecond float64) error {
	if s.net.fabric.Links[h.Link].Capacity == 0 {
		return fmt.Errorf("link %s: the file states no capacity to compare %.0f bit/s with; write one, such as capacity: 10Gbit", s.net.linkName[h.Link], bitsPerSecond)
	}
	if !(bitsPerSecond >= 0) || bitsPerSecond > maxMeasured {
		return fmt.Errorf("link %s: %g bit/s cannot be; write 0 to %g", s.net.linkName[h.Link], bitsPerSecond, float64(maxMeasured))
	}
	return nil
}

// maxMeasured bounds measured loads, in bit/s: more than any link carries.
const maxMeasured = 1e15

// share is what a placed flow is taken to send, as nobody tells: its part of
// the link that it shares with most.
func (s *Scheduler) share(p *Placement) float64 {
	least := float64(maxMeasured)
	for _, h := range p.Path.Hops {
		least = min(least, s.capacity(h.Link)/float64(max(1, len(s.link(h).ids))))
	}
	return least
}

func (s *Scheduler) capacity(link int) float64 {
	if c := s.net.fabric.Links[link].Capacity; c > 0 {
		return float64(c)
	}
	return s.usual
}

// leastFree is the part of a link's capacity that counts as free however much
// is measured: loads stay finite, and flows can be told from none.
const leastFree = 0.01

// load is what the link has for a flow that may come: flows a bit/s, the link
// usual in the fabric being 1.
func (s *Scheduler) load(h Hop) float64 {
	l, c := s.link(h), s.capacity(h.Link)
	return float64(len(l.ids)+1) * s.usual / max(c-l.background, c*leastFree)
}

// LinkLoad is what a link carries in one direction.
type LinkLoad struct {
	Hop
	Flows    int     // placed flows
	Measured float64 // bit/s; of no meaning if Until is zero
	// Background is what was measured and is not of placed flows, in bit/s.
	Background float64
	Until      time.Time // how long the measurement counts
}

// Loads are all links in both directions, by link.
func (s *Scheduler) Loads() []LinkLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]LinkLoad, len(s.links))
	for i := range s.links {
		l := &s.links[i]
		out[i] = LinkLoad{Hop{i / 2, i % 2}, len(l.ids), l.measured, l.background, l.until}
	}
	return out
}

// Placed are all placed flows, by ID.
func (s *Scheduler) Placed() []Placement {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Placement, 0, len(s.placed))
	for _, p := range s.placed {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Placement) int { return int(a.ID) - int(b.ID) })
	return out
}
