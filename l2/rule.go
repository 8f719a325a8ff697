package l2

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/dchest/siphash"
)

// The rule by which balancers have addresses: what one of them does about each, by
// what it knows. It has no clock and asks nobody.

// The times and numbers of the rule.
const (
	// missed is after how many questions without an answer, one each askInterval, a
	// holder is silent; each balancer that comes later in the order waits for
	// missedMore.
	missed, missedMore = 4, 2
	// freeStep is how much longer each balancer leaves an address that nobody has to
	// those before it.
	freeStep = 300 * time.Millisecond
	// settled is how long a balancer has been fit before addresses move to it that
	// somebody holds well.
	settled = 5 * time.Second
	// parting is how long one that is no longer fit goes on answering, if nobody
	// else does.
	parting = time.Second
)

// Order is in which order balancers shall have an address: by the highest random
// weight, so that each has as many as any other, and no more addresses move than
// must when one comes or goes.
func Order(a netip.Addr, names []string) []string {
	weight := func(name string) uint64 {
		b := a.As16()
		return siphash.Hash(0, 0, append(b[:], name...))
	}
	names = slices.Clone(names)
	slices.SortFunc(names, func(x, y string) int {
		return cmp.Or(cmp.Compare(weight(y), weight(x)), cmp.Compare(x, y))
	})
	return names
}

// known is what a balancer knows of an address.
type known struct {
	address netip.Addr
	me      string
	// fit: it may hold the address; since is for how long that is so, or is not.
	fit   bool
	since time.Duration
	// fits are all that may, as the store has it; it is among them.
	fits []string
	// holder is who holds the address by the store, "" nobody, for the time free.
	holder string
	free   time.Duration
	// missed is how many questions each holder left unanswered, and patience how
	// many it may where that is not missed.
	missed, patience map[string]int
	// leased: the store answers this balancer. Where it does not, what somebody else
	// says counts: claimed is how long ago he was last heard to have the address, and
	// claimant who that is, "" no balancer.
	leased   bool
	claimed  time.Duration
	claimant string
	// answers: it answers for the address; taken: it does since the holder is
	// silent, though the store has not agreed.
	answers, taken bool
	// stale: what the store has of its holding goes with a lease that is over.
	stale bool
	// mayMove: an address may move to it that somebody holds well.
	mayMove bool
}

// write is what shall become of the holder in the store.
type write int

const (
	nothing write = iota
	take          // it is this balancer
	leave         // it is nobody
)

// verdict is what a balancer does about an address.
type verdict struct {
	answer bool
	write  write
	// urgent: the holder is silent. It answers before the store has agreed, which may
	// take a while, and goes on where the store is silent, too.
	urgent bool
	// moves: the holder is well.
	moves bool
}

func decide(k known) verdict {
	mine := k.holder == k.me
	switch {
	case !k.fit:
		v := verdict{answer: k.answers && (k.holder == "" || mine) && k.since < parting}
		if mine && k.leased {
			v.write = leave
		}
		return v
	case mine && k.leased:
		v := verdict{answer: true}
		if k.stale {
			v.write = take
		}
		return v
	case mine:
		return verdict{answer: !k.heldByOther(0)}
	}
	turns := Order(k.address, k.heard())
	rank := slices.Index(turns, k.me)
	on := k.answers && (k.holder == "" || k.taken) && !(k.heldByOther(0) && slices.Index(turns, k.claimant) <= rank)
	switch {
	case rank < 0: // the store does not know yet that it may
		return verdict{answer: on}
	case k.holder == "":
		if k.leased && (on || k.free >= time.Duration(rank)*freeStep) {
			return verdict{answer: on, write: take}
		}
	case k.silent(k.holder, rank*missedMore):
		if !k.heldByOther(rank) {
			return verdict{answer: true, write: take, urgent: true}
		}
	case k.leased && k.mayMove && rank == 0 && k.since >= settled:
		return verdict{answer: on, write: take, moves: true}
	}
	return verdict{answer: on}
}

// heard are those that may have the address and are not silent.
func (k known) heard() []string {
	return slices.DeleteFunc(slices.Clone(k.fits), func(name string) bool {
		return name != k.me && k.silent(name, 0)
	})
}

// heldByOther: the store is silent, and somebody else was heard to have the address,
// so lately that one who is so far down in the order has to believe it.
func (k known) heldByOther(rank int) bool {
	return !k.leased && k.claimed < (missed+1+time.Duration(rank*missedMore))*askInterval
}

// silent: a holder left all questions unanswered that it may, and so many more.
func (k known) silent(name string, more int) bool {
	patience := k.patience[name]
	if patience == 0 {
		patience = missed
	}
	return k.missed[name] >= patience+more
}
