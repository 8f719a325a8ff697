package pcc

import (
	"math/rand/v2"
	"slices"

	"github.com/fairlead/fairlead/controller/buckets"
)

// greedy is Faild's way to reassign (NSDI'18, §4.1): each bucket of a server
// that drains goes to the one with the fewest. A server that is added takes one
// after another of those with the most, until it has its share: any of theirs,
// since the paper does not say which. The controller takes those instead that
// moved longest ago (buckets.Table.Assign). Each bucket moves once at most.
func greedy(current []uint16, p *Pool, r *rand.Rand) []buckets.Move {
	counts := make([]int, len(p.State))
	for _, s := range current {
		counts[s]++
	}
	to := map[uint32]uint16{}
	for _, c := range p.Last {
		if c.Add {
			refill(current, to, counts, c.Server, len(current)/len(p.Working), r)
		} else {
			drain(current, to, counts, c.Server, p.Working)
		}
	}
	moves := make([]buckets.Move, 0, len(to))
	for b, s := range to {
		moves = append(moves, buckets.Move{Bucket: b, To: s})
	}
	slices.SortFunc(moves, func(a, b buckets.Move) int { return int(a.Bucket) - int(b.Bucket) })
	return moves
}

func drain(current []uint16, to map[uint32]uint16, counts []int, server uint16, working []uint16) {
	for b, s := range current {
		if s != server {
			continue
		}
		fewest := working[0]
		for _, w := range working {
			if counts[w] < counts[fewest] {
				fewest = w
			}
		}
		counts[fewest]++
		to[uint32(b)] = fewest
	}
	counts[server] = 0
}

func refill(current []uint16, to map[uint32]uint16, counts []int, server uint16, share int, r *rand.Rand) {
	order := r.Perm(len(current))
	for most := slices.Max(counts); most > 0 && counts[server] < share; most-- {
		for _, b := range order {
			s := current[b]
			if _, moves := to[uint32(b)]; moves || s == server || counts[s] < most {
				continue
			}
			counts[s]--
			to[uint32(b)] = server
			if counts[server]++; counts[server] == share {
				break
			}
		}
	}
}
