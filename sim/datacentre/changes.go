package datacentre

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// change is what happens to the servers of one VIP at one time. A server goes
//
//	working ──out──▶ draining ──over──▶ away ──in──▶ working
//	working ──failed──▶ down ──over──▶ away ──in──▶ working
//
// where "over" comes Drain later, unless it is back by then.
type change struct {
	at sim.Time
	// out takes no new connections from now on, but keeps those it has.
	out []uint16
	// failed is dead, and with it its connections.
	failed []uint16
	// over: no connection of it is left that anybody should wait for.
	over []uint16
	// in takes new connections again.
	in []uint16
}

// moves: it concerns where new connections go.
func (c *change) moves() bool { return len(c.out)+len(c.failed)+len(c.in) > 0 }

// changes of a VIP, in the order of time: rolling upgrades in waves, at even
// distances, each server as often; and failures. Streams: "upgrades N",
// "failures N".
func (s *site) changes(vip int) []*change {
	n := s.size[vip]
	at := map[sim.Time]*change{}
	get := func(t sim.Time) *change {
		if at[t] == nil {
			at[t] = &change{at: t}
		}
		return at[t]
	}
	back := make([]sim.Time, n)
	for b := range back {
		back[b] = -1
	}
	for _, o := range s.outages(vip) {
		out := 0
		for _, t := range back {
			if t > o.at {
				out++
			}
		}
		for i, server := range o.servers {
			// A VIP never is without a server.
			if back[server] >= o.at || out == n-1 {
				continue
			}
			out++
			back[server] = o.at + o.away[i]
			if c := get(o.at); o.failed {
				c.failed = append(c.failed, server)
			} else {
				c.out = append(c.out, server)
			}
			over := o.at + sim.Time(s.Drain)
			if over < back[server] && over < s.end {
				get(over).over = append(get(over).over, server)
			}
			if back[server] < s.end {
				get(back[server]).in = append(get(back[server]).in, server)
			}
		}
	}
	list := make([]*change, 0, len(at))
	for _, t := range slices.Sorted(maps.Keys(at)) {
		list = append(list, at[t])
	}
	return list
}

// outage takes servers out at one time.
type outage struct {
	at      sim.Time
	failed  bool
	servers []uint16
	away    []sim.Time
}

func (s *site) outages(vip int) (list []outage) {
	n := s.size[vip]
	r := sim.Stream(s.seed, fmt.Sprint("upgrades ", vip))
	left := s.part(s.Changes, vip)
	wave := max(1, int(float64(n)*s.Wave/100))
	waves := (left + wave - 1) / wave
	phase := r.Float64()
	order := r.Perm(n)
	next := 0
	for i := range waves {
		o := outage{at: sim.Time((float64(i) + phase) * float64(s.end) / float64(waves))}
		for range min(wave, left) {
			o.servers = append(o.servers, uint16(order[next%n]))
			o.away = append(o.away, workload.Downtime.Draw(r))
			next++
			left--
		}
		list = append(list, o)
	}
	r = sim.Stream(s.seed, fmt.Sprint("failures ", vip))
	for range workload.PoissonNumber(r, float64(s.Failures)*s.share[vip]) {
		list = append(list, outage{
			at: sim.Time(r.Int64N(int64(s.end))), failed: true,
			servers: []uint16{uint16(r.IntN(n))}, away: []sim.Time{workload.Downtime.Draw(r)},
		})
	}
	slices.SortStableFunc(list, func(a, b outage) int { return int(min(max(a.at-b.at, -1), 1)) })
	return list
}

// part is a VIP's share of a number, by its servers; all parts sum up to it.
func (s *site) part(total, vip int) int {
	before := 0
	for _, n := range s.size[:vip] {
		before += n
	}
	upTo := func(servers int) int { return int(float64(total) * float64(servers) / float64(s.Servers)) }
	return upTo(before+s.size[vip]) - upTo(before)
}
