// Package l2 has the addresses of VIPs held, each by one of the balancers that are on
// an Ethernet, where no router speaks BGP: the holder answers ARP and neighbour
// discovery for it. Who may hold an address is decided as for BGP (bgp.Decide), who
// does by the store, one key an address:
//
//	l2/fit/NAME         the addresses that a balancer may hold
//	l2/holders/ADDRESS  who holds it, and his Ethernet addresses
//
// both under a lease of the balancer. All go by one rule (rule.go), and ask the
// holders for their addresses all the time, as any client would: one that does not
// answer is dead early, before its lease is. Any balancer takes any packet, so that
// two holders at once break nothing. Where the store is silent a holder goes on until
// it hears somebody else announce the address, and of one that is silent too the
// next by the rule takes over what it had.
//
//	node, wire, store ─▶ known ─▶ decide ─▶ answer or not; compare and swap
//
// Files: rule.go the rule, l2.go what it goes by and does, hear.go store and wire,
// report.go what people are told.
package l2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/wire"
)

// Wire is the Ethernet: l2/segment, and in tests one in memory. What it hears it
// tells Keeper.Heard; what is asked for it answers where Keeper.Holds says so.
type Wire interface {
	// Join makes the addresses those that may be asked for.
	Join(addresses []netip.Addr) error
	// Announce tells everybody that an address is here now.
	Announce(a netip.Addr) error
	// Ask asks the machine at these addresses, or everybody, for an address.
	Ask(a netip.Addr, at ...wire.MAC) error
	MACs() []wire.MAC
	// Faults are why nobody hears this machine; empty: it can be heard.
	Faults() []string
	// Run hears and answers until ctx ends.
	Run(ctx context.Context) error
	Close() error
}

// Options are a Keeper's.
type Options struct {
	Name  string // of the balancer
	Store store.Store
	// Node is the balancer as it stands; an error of it changes nothing.
	Node func() (bgp.Node, error)
	Log  *slog.Logger
}

// Keeper holds what is its balancer's to hold.
type Keeper struct {
	o    Options
	wire Wire // set by Run's caller, once
	poke chan struct{}
	look chan struct{}

	mu sync.Mutex
	// What the store has.
	read    bool // at least once
	fits    map[string][]netip.Addr
	holders map[netip.Addr]holder
	free    map[netip.Addr]time.Time // since when nobody holds it
	// lease is this balancer's, nil while the store does not answer; era counts them.
	lease  store.Lease
	era    int
	silent string // why the store does not answer, empty: it does
	// What this balancer may.
	looked    bool
	decisions []bgp.Decision
	since     map[netip.Addr]time.Time // the decision is
	// written is what the store has of it, of the lease counted writtenIn, by the
	// revision writtenAt. fitAt is the newest that wrote or deleted it, whoever did.
	written          []netip.Addr
	writtenIn        int
	writtenAt, fitAt int64
	left             bool
	// What it does, by address.
	answers map[netip.Addr]*answered
	moved   time.Time // when an address last moved here that somebody held well
	// What is heard.
	missed   map[string]int
	patience map[string]patience
	names    map[wire.MAC]string // of holders
	claims   map[netip.Addr]claim
	asked    int
	said     map[string]time.Time // warnings, and when
}

// holder is what the store has of an address.
type holder struct {
	Name string     `json:"name"`
	MACs []wire.MAC `json:"macs"`
	// Silent is who held it before and did not answer, empty: it came otherwise.
	Silent string `json:"silent,omitempty"`
	rev    int64
	era    int // of the lease that it was written under, here
}

// answered is an address that is answered for.
type answered struct {
	since time.Time
	told  int // how often it was announced
	// from is the holder that was silent, if it was taken from one; taken is the
	// revision of what the store has of that one, 0 once it agrees.
	from  string
	taken int64
}

// patience is how many questions a holder may leave unanswered. It doubles when what
// was taken from it is taken back in the same way, or at once: then one of the two
// hears nobody.
type patience struct {
	questions int
	raised    time.Time
}

// claim is somebody else's word that he has an address.
type claim struct {
	mac wire.MAC
	at  time.Time
}

const (
	// askInterval is how often holders are asked, and the rule looked at.
	askInterval = 100 * time.Millisecond
	// lookInterval is how often the node is looked at.
	lookInterval = 500 * time.Millisecond
	leaseTime    = 5 * time.Second
	// storeTime bounds a call, and storeRest lies between two tries.
	storeTime, storeRest = time.Second, 200 * time.Millisecond
	// handover is how long two may answer for an address that one takes from the other.
	handover = 2 * time.Second
	// moveInterval lies between two addresses that move though they are held well.
	moveInterval = time.Second
	// forgiven is within what time what is taken back shows that both live, and after
	// what time that is forgotten. mostPatience is longer than leaseTime: one that is
	// dead is known by then.
	forgiven     = time.Minute
	mostPatience = 256
	// ownEvery is after how many rounds of asking a holder asks for an address of its
	// own: a server may answer for it.
	ownEvery = 50
	// abreast is how many writes are under way at once.
	abreast = 16
)

// announcements are when an address is announced, since it is held: one may be lost.
var announcements = []time.Duration{0, 200 * time.Millisecond, time.Second, 5 * time.Second}

// New makes one; Run has it work.
func New(o Options) *Keeper {
	return &Keeper{o: o, poke: make(chan struct{}, 1), look: make(chan struct{}, 1),
		fits: map[string][]netip.Addr{}, holders: map[netip.Addr]holder{}, free: map[netip.Addr]time.Time{}, since: map[netip.Addr]time.Time{},
		answers: map[netip.Addr]*answered{}, missed: map[string]int{}, patience: map[string]patience{}, claims: map[netip.Addr]claim{},
		names: map[wire.MAC]string{}, said: map[string]time.Time{},
		silent: "the store was not asked yet"}
}

// Poke has the node looked at soon, as something has changed.
func (k *Keeper) Poke() { signal(k.look) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is
	}
}

// Run holds addresses on w until ctx ends; then all are left.
func (k *Keeper) Run(ctx context.Context, w Wire) error {
	k.mu.Lock()
	k.wire = w
	k.mu.Unlock()
	g, life := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(life) })
	g.Go(func() error { return k.live(life) })
	g.Go(func() error { return k.watch(life) })
	g.Go(func() error { return k.watchNode(life) })
	g.Go(func() error { return k.work(life) })
	err := g.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
	defer cancel()
	k.part(ending)
	return errors.Join(err, w.Close())
}

// work does what the rule says, whenever something may have changed.
func (k *Keeper) work(ctx context.Context) error {
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	for {
		k.step(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			k.ask()
			k.repeat()
		case <-k.poke:
		}
	}
}

// Holds says whether the address is answered for.
func (k *Keeper) Holds(a netip.Addr) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.answers[a] != nil
}

// job is a verdict about an address, to be carried out.
type job struct {
	a   netip.Addr
	v   verdict
	was holder
	era int
	// lease is what it is written under.
	lease store.Lease
}

// step carries out what the rule says now.
func (k *Keeper) step(ctx context.Context) {
	k.sayFit(ctx)
	g := new(errgroup.Group)
	g.SetLimit(abreast)
	for _, j := range k.jobs(time.Now()) {
		g.Go(func() error { k.write(ctx, j); return nil })
	}
	_ = g.Wait()
}

// jobs looks at all addresses, and answers for those, and only those, that are to be
// answered for whatever the store says. What is to be written it gives back.
func (k *Keeper) jobs(now time.Time) (jobs []job) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.looked || k.left {
		return nil
	}
	addresses := map[netip.Addr]bool{}
	for _, d := range k.decisions {
		addresses[d.Address] = len(d.Withheld) == 0
	}
	for a := range k.answers {
		addresses[a] = addresses[a] // a VIP that is gone is not fit
	}
	for a, h := range k.holders {
		if h.Name == k.o.Name {
			addresses[a] = addresses[a]
		}
	}
	fits := map[netip.Addr][]string{}
	for name, all := range k.fits {
		for _, a := range all {
			fits[a] = append(fits[a], name)
		}
	}
	limits := map[string]int{}
	for name, p := range k.patience {
		limits[name] = p.questions
	}
	move := now.Sub(k.moved) >= moveInterval
	for _, a := range slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare) {
		h := k.holders[a]
		if h.Name == "" && k.free[a].IsZero() {
			k.free[a] = now
		}
		is := k.answers[a]
		v := decide(known{address: a, me: k.o.Name, fit: addresses[a], since: now.Sub(k.since[a]), fits: fits[a], holder: h.Name, free: now.Sub(k.free[a]),
			missed: k.missed, patience: limits, leased: k.lease != nil, claimed: now.Sub(k.claims[a].at), claimant: k.names[k.claims[a].mac],
			answers: is != nil, taken: is != nil && is.taken != 0 && is.taken == h.rev, stale: h.era != k.era, mayMove: move})
		k.answer(a, v.answer, now)
		if v.urgent && k.answers[a].taken != h.rev {
			k.warn("a holder does not answer for its addresses: taking them", "balancer", h.Name)
			k.answers[a].from, k.answers[a].taken = h.Name, h.rev
		}
		if v.write == nothing {
			continue
		}
		if v.moves {
			move, k.moved = false, now
		}
		jobs = append(jobs, job{a, v, h, k.era, k.lease})
	}
	return jobs
}

// answer begins or ends answering for an address; the caller holds mu.
func (k *Keeper) answer(a netip.Addr, answer bool, now time.Time) {
	is := k.answers[a]
	switch {
	case answer && is == nil:
		k.answers[a] = &answered{since: now}
		k.o.Log.Info("address held", "address", a.String())
		k.tell(a, now)
	case !answer && is != nil:
		delete(k.answers, a)
		k.o.Log.Warn("address no longer held", "address", a.String())
	}
}

// tell announces an address that is held if it is time; the caller holds mu.
func (k *Keeper) tell(a netip.Addr, now time.Time) {
	is := k.answers[a]
	if is.told == len(announcements) || now.Sub(is.since) < announcements[is.told] {
		return
	}
	is.told++
	if err := k.wire.Announce(a); err != nil {
		k.o.Log.Warn("an address could not be announced", "address", a.String(), "error", err)
	}
}

// repeat announces what was held a while ago once more.
func (k *Keeper) repeat() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for a := range k.answers {
		k.tell(a, time.Now())
	}
}

// write brings a verdict into the store, and answers if that agrees.
func (k *Keeper) write(ctx context.Context, j job) {
	if j.lease == nil {
		return // the store does not answer
	}
	op := store.Op{Key: holdersKey + j.a.String(), Delete: j.v.write == leave}
	now := holder{Name: k.o.Name, MACs: k.wire.MACs(), era: j.era}
	if j.v.urgent {
		now.Silent = j.was.Name
	}
	if j.v.write == take {
		op.Value, _ = json.Marshal(now) // of names and numbers: it cannot fail
		op.Lease = j.lease
	}
	call, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	var err error
	now.rev, err = k.o.Store.Commit(call, []store.If{{Key: op.Key, Rev: j.was.rev}}, op)
	if err != nil {
		return // what the store has instead will be heard; else it is tried again
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	at := time.Now()
	if j.v.write == leave {
		k.holds(j.a, holder{rev: now.rev}, at)
		return
	}
	k.holds(j.a, now, at)
	if !k.left && k.holders[j.a].rev == now.rev {
		k.answer(j.a, true, at)
		k.answers[j.a].taken = 0
	}
}

// warn says something once in a while of the first thing in of; what else is in there
// may be another machine's to choose. The caller holds mu.
func (k *Keeper) warn(text string, of ...any) {
	now, key := time.Now(), text+" "+fmt.Sprint(of[1])
	maps.DeleteFunc(k.said, func(_ string, at time.Time) bool { return now.Sub(at) > forgiven })
	if k.said[key].IsZero() {
		k.said[key] = now
		k.o.Log.Warn(text, of...)
	}
}

// holds notes who holds an address by the store, since a revision; the caller holds
// mu.
func (k *Keeper) holds(a netip.Addr, h holder, now time.Time) {
	was := k.holders[a]
	if was.rev >= h.rev {
		return // it is known, or older
	}
	if is := k.answers[a]; is != nil && is.from != "" && is.from == h.Name && now.Sub(is.since) < forgiven &&
		// One that was dead has to settle before anything comes back to it.
		(h.Silent == k.o.Name || now.Sub(is.since) < settled) {
		p := k.patience[h.Name]
		k.patience[h.Name] = patience{min(2*max(p.questions, missed), mostPatience), now}
	}
	if h.Name == "" {
		delete(k.holders, a)
		k.free[a] = now
		return
	}
	delete(k.free, a)
	k.holders[a] = h
	k.missed[h.Name] = 0 // it lives
	for _, m := range h.MACs {
		k.names[m] = h.Name
	}
}

// Leave leaves all addresses, for good, and answers for them until another balancer
// does, for a second at the most. ctx bounds it. Run has to be at work.
func (k *Keeper) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, parting)
	defer cancel()
	k.part(ctx)
	for ctx.Err() == nil && k.others() {
		select {
		case <-ctx.Done():
		case <-time.After(askInterval / 10):
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.answers)
}

// part ends the lease, and what the store has under it.
func (k *Keeper) part(ctx context.Context) {
	k.mu.Lock()
	lease, first := k.lease, !k.left
	k.left = true
	k.mu.Unlock()
	if !first || lease == nil {
		return
	}
	if err := lease.Close(ctx); err != nil {
		k.o.Log.Warn("the store could not be told that this balancer holds nothing any more", "error", err)
	}
}

// others: an address that is answered for is nobody's yet, and somebody may have it.
func (k *Keeper) others() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for a := range k.answers {
		if h := k.holders[a].Name; h != "" && h != k.o.Name {
			delete(k.answers, a)
			continue
		}
		for name, all := range k.fits {
			if name != k.o.Name && slices.Contains(all, a) {
				return true
			}
		}
	}
	return false
}
