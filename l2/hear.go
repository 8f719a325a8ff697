package l2

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/wire"
)

// What a keeper goes by: its node, the store, and what is heard on the Ethernet.

// Keys is where all keys are that balancers write by this package.
const Keys = "l2/"

const (
	fitKey     = Keys + "fit/"
	holdersKey = Keys + "holders/"
)

// watchNode looks at the node until ctx ends.
func (k *Keeper) watchNode(ctx context.Context) error {
	for {
		k.lookAt()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookInterval):
		case <-k.look:
		}
	}
}

// lookAt decides which addresses this balancer may hold.
func (k *Keeper) lookAt() {
	node, err := k.o.Node()
	if err != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.warn("look which addresses may be held", "error", err)
		return
	}
	decisions := bgp.Decide(node, bgp.Common{})
	faults := k.wire.Faults()
	var addresses []netip.Addr
	for i := range decisions {
		addresses = append(addresses, decisions[i].Address)
		decisions[i].Withheld = append(decisions[i].Withheld, faults...)
	}
	if err := k.wire.Join(addresses); err != nil && len(faults) == 0 {
		k.mu.Lock()
		k.warn("IPv6 addresses may not be asked for", "error", err)
		k.mu.Unlock()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	was := map[netip.Addr]bool{}
	for _, d := range k.decisions {
		was[d.Address] = len(d.Withheld) == 0
	}
	now, since := time.Now(), map[netip.Addr]time.Time{}
	for _, d := range decisions {
		since[d.Address] = now
		if before, known := was[d.Address]; known && before == (len(d.Withheld) == 0) {
			since[d.Address] = k.since[d.Address]
		}
	}
	k.decisions, k.since, k.looked = decisions, since, true
	signal(k.poke)
}

// sayFit says in the store which addresses this balancer may hold, if that is news.
func (k *Keeper) sayFit(ctx context.Context) {
	k.mu.Lock()
	fit := []netip.Addr{}
	for _, d := range k.decisions {
		if len(d.Withheld) == 0 {
			fit = append(fit, d.Address)
		}
	}
	lease, era := k.lease, k.era
	said := k.left || !k.looked || lease == nil || k.writtenIn == era && k.fitAt <= k.writtenAt && slices.Equal(k.written, fit)
	k.mu.Unlock()
	if said {
		return
	}
	value, _ := json.Marshal(fit) // of addresses: it cannot fail
	call, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	rev, err := k.o.Store.Commit(call, nil, store.Op{Key: fitKey + k.o.Name, Value: value, Lease: lease})
	if err != nil {
		return // live says that the store is silent
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written, k.writtenIn, k.writtenAt, k.fits[k.o.Name] = fit, era, rev, fit
}

// live keeps a lease in the store until ctx ends.
func (k *Keeper) live(ctx context.Context) error {
	for {
		granting, cancel := context.WithTimeout(ctx, 3*storeTime)
		lease, err := k.o.Store.Grant(granting, leaseTime)
		cancel()
		k.mu.Lock()
		if err != nil {
			k.silent = err.Error()
		} else {
			k.lease, k.silent = lease, ""
			k.era++
			signal(k.poke)
		}
		k.mu.Unlock()
		if err == nil {
			select {
			case <-ctx.Done():
			case <-lease.Done():
			}
			k.mu.Lock()
			left := k.left
			k.silent = "the store has not heard this balancer for " + leaseTime.String()
			if ctx.Err() == nil {
				k.lease = nil
			}
			signal(k.poke)
			k.mu.Unlock()
			if left {
				return nil
			}
		}
		if !rest(ctx) {
			return nil
		}
	}
}

// rest waits a moment; false: ctx has ended.
func rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(storeRest):
		return true
	}
}

// watch follows what the store has until ctx ends.
func (k *Keeper) watch(ctx context.Context) error {
	for {
		k.mu.Lock()
		before := maps.Clone(k.holders)
		k.mu.Unlock()
		call, cancel := context.WithTimeout(ctx, storeTime)
		entries, rev, err := k.o.Store.Read(call, Keys)
		cancel()
		if err == nil {
			k.all(before, entries, rev)
			for events, err := range k.o.Store.Watch(ctx, Keys, rev) {
				if err != nil {
					break
				}
				k.mu.Lock()
				for _, e := range events {
					k.take(e)
				}
				k.mu.Unlock()
				signal(k.poke)
			}
		}
		if !rest(ctx) {
			return nil
		}
	}
}

// all takes over the whole of what the store has as of rev, whose reading began when
// before was known.
func (k *Keeper) all(before map[netip.Addr]holder, entries []store.Entry, rev int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fits = map[string][]netip.Addr{}
	there := map[string]int64{}
	for _, e := range entries {
		there[e.Key] = e.Rev
	}
	for a, h := range before {
		// A store that was made anew, or put back, counts from lower revisions. What is
		// new since the reading began was written here, and is newer than it.
		if now := k.holders[a]; now.rev == h.rev && there[holdersKey+a.String()] != h.rev {
			now.rev = 0
			k.holders[a] = now
		}
	}
	for _, e := range entries {
		k.take(store.Event{Entry: e})
	}
	for a := range maps.Clone(k.holders) {
		if there[holdersKey+a.String()] == 0 {
			k.holds(a, holder{rev: rev}, time.Now())
		}
	}
	if k.fitAt = there[fitKey+k.o.Name]; k.fitAt != k.writtenAt {
		k.writtenIn = -1
	}
	k.read = true
	signal(k.poke)
}

// take takes over what happened to a key; what cannot be read counts as deleted. The
// caller holds mu.
func (k *Keeper) take(e store.Event) {
	if name, ok := strings.CutPrefix(e.Key, fitKey); ok {
		var fit []netip.Addr
		if e.Deleted || json.Unmarshal(e.Value, &fit) != nil {
			delete(k.fits, name)
		} else {
			k.fits[name] = fit
		}
		if name == k.o.Name {
			// What somebody else wrote there, or deleted, is said again in a moment: the same
			// words, too, which may go with his lease, or with none.
			k.fitAt = e.Rev
		}
		return
	}
	name, ok := strings.CutPrefix(e.Key, holdersKey)
	a, err := netip.ParseAddr(name)
	if !ok || err != nil {
		return
	}
	h := holder{}
	if !e.Deleted && json.Unmarshal(e.Value, &h) != nil {
		h = holder{Name: "?"} // nobody answers for it, so that it is taken from him
	}
	h.rev = e.Rev
	k.holds(a, h, time.Now())
}

// ask asks each holder for one of its addresses; where the store is silent everybody
// for those that this balancer may have to hold; and now and then, for one of its
// own, whether somebody else answers.
func (k *Keeper) ask() {
	type question struct {
		a  netip.Addr
		at []wire.MAC
	}
	var questions []question
	k.mu.Lock()
	now := time.Now()
	k.asked++
	has := map[string][]netip.Addr{}
	for _, a := range slices.SortedFunc(maps.Keys(k.holders), netip.Addr.Compare) {
		if h := k.holders[a]; h.Name != k.o.Name {
			has[h.Name] = append(has[h.Name], a)
		}
		if k.lease == nil && k.answers[a] == nil {
			questions = append(questions, question{a: a})
		}
	}
	for name := range k.missed {
		if has[name] == nil {
			delete(k.missed, name)
		}
	}
	for name, all := range has {
		a := all[k.asked%len(all)]
		k.missed[name]++
		if macs := k.holders[a].MACs; len(macs) > 0 {
			questions = append(questions, question{a, macs})
		}
	}
	for name, p := range k.patience {
		if now.Sub(p.raised) > forgiven {
			delete(k.patience, name)
		}
	}
	if own := slices.SortedFunc(maps.Keys(k.answers), netip.Addr.Compare); len(own) > 0 && k.asked%ownEvery == 0 {
		questions = append(questions, question{a: own[k.asked/ownEvery%len(own)]})
	}
	k.mu.Unlock()
	for _, q := range questions {
		_ = k.wire.Ask(q.a, q.at...) // what is not asked is not answered: Faults says why
	}
}

// Heard is told that a machine says that it has an address.
func (k *Keeper) Heard(a netip.Addr, at wire.MAC) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name := k.names[at]; name != "" {
		k.missed[name] = 0
	}
	if _, ours := k.since[a]; !ours {
		return
	}
	now := time.Now()
	k.claims[a] = claim{at, now}
	is := k.answers[a]
	switch {
	case is == nil:
	case k.lease == nil:
		signal(k.poke)
	case k.holders[a].Name == k.o.Name && now.Sub(is.since) > handover:
		k.warn("another machine answers for an address that this balancer holds", "address", a.String(), "machine", mac(at), "balancer", k.names[at])
		if is.told == len(announcements) {
			is.told-- // once more, that this one is heard last
		}
	}
}
