package chash

import (
	"cmp"
	"slices"
	"strings"
)

// change is one server's step from a set and weight to another. Where it is
// nowhere its weight is 0.
type change struct {
	node      Node
	from, to  place
	oldWeight int
	weight    int
}

// verbs are the four verbs of Hash for the hashes that can take any server
// under any weight: they check, keep the roster, and leave the change itself
// to the hash, their keeper.
type verbs struct {
	roster
	keeper interface {
		// apply carries out a change that is in order. The roster shows the
		// state after it, but still knows a server that is removed. If it
		// fails it has changed nothing; a removal may not fail.
		apply(c change) error
	}
	hashes []uint64 // of the names, by Node
}

// newVerbs knows the servers, of which the i-th has the handle i.
func newVerbs(k Kind, servers []Server) verbs {
	v := verbs{roster: newRoster(k), hashes: make([]uint64, len(servers))}
	for i, s := range servers {
		v.put(s.Name, inWorking, s.Weight)
		v.hashes[i] = nameHash(s.Name)
	}
	return v
}

// Add implements Hash.
func (v *verbs) Add(name string, weight int) error { return v.move(name, inWorking, weight) }

// Park implements Hash.
func (v *verbs) Park(name string, weight int) error { return v.move(name, inHorizon, weight) }

func (v *verbs) move(name string, to place, weight int) error {
	if _, _, err := v.check(name, to, weight); err != nil {
		return err
	}
	return v.carryOut(name, to, weight)
}

// SetWeight implements Hash.
func (v *verbs) SetWeight(name string, weight int) error {
	_, in, err := v.checkKnown(name, weight)
	if err != nil {
		return err
	}
	return v.carryOut(name, in, weight)
}

// Remove implements Hash.
func (v *verbs) Remove(name string) error {
	if _, in := v.find(name); in == nowhere {
		return unknown(name)
	}
	return v.carryOut(name, nowhere, 0)
}

// carryOut changes roster and hash, or neither.
func (v *verbs) carryOut(name string, to place, weight int) error {
	n, from := v.find(name)
	c := change{n, from, to, 0, weight}
	if from != nowhere {
		c.oldWeight = v.servers[n].weight
	}
	if to == nowhere {
		err := v.keeper.apply(c)
		v.drop(n)
		return err
	}
	c.node = v.put(name, to, weight)
	if from == nowhere {
		v.hashes = slices.Grow(v.hashes, 1)[:max(len(v.hashes), int(c.node)+1)]
		v.hashes[c.node] = nameHash(name)
	}
	err := v.keeper.apply(c)
	switch {
	case err == nil:
	case from == nowhere:
		v.drop(c.node)
	default:
		v.put(name, from, c.oldWeight)
	}
	return err
}

// before orders servers by the hash of their names, then by name: what
// decides ties, the same on every balancer.
func (v *verbs) before(a, b Node) bool {
	return before(v.hashes[a], v.servers[a].name, v.hashes[b], v.servers[b].name)
}

func before(hashA uint64, a string, hashB uint64, b string) bool {
	return cmp.Or(cmp.Compare(hashA, hashB), strings.Compare(a, b)) < 0
}

// nameRanks returns each member's place in the order that before defines,
// and the members' indices in that order.
func nameRanks(members []Member) (ranks []uint64, byRank []int32) {
	hashes := make([]uint64, len(members))
	byRank = make([]int32, len(members))
	for i, m := range members {
		hashes[i], byRank[i] = nameHash(m.Name), int32(i)
	}
	slices.SortFunc(byRank, func(a, b int32) int {
		if before(hashes[a], members[a].Name, hashes[b], members[b].Name) {
			return -1
		}
		return 1 // names differ
	})
	ranks = make([]uint64, len(members))
	for rank, i := range byRank {
		ranks[i] = uint64(rank)
	}
	return ranks, byRank
}
