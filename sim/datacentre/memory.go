package datacentre

import (
	"slices"

	"github.com/fairlead/fairlead/policy"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/pcc"
	"github.com/fairlead/fairlead/sim/workload"
)

// Sizes in a balancer's data plane (bpf/include/balancer.h; a test compares).
const (
	// lineBytes is a server line: where a server is and how packets get there,
	// one for each slot and processor.
	lineBytes = 64
	// countBytes is a server's number of open connections.
	countBytes = 4
	// vipBytes is a VIP.
	vipBytes = 128
	// flowSetBytes is a set of the flow table, of seven entries.
	flowSetBytes = 64
	// shareBytes is what a balancer tells another one of a tracked connection
	// (ShareFlows): its key and its entry.
	shareBytes = 8 + 4
)

// bucketBytes is a table of buckets in the data plane: two octets a bucket, in
// lines of eight buckets, and behind them the words of its chain. That is two
// for three previous servers and the time of the last move; one previous server
// and the time are one word, as the data plane would have it if it had no more.
func bucketBytes(n, words int) int64 { return int64((n+7)/8*2+words*n) * 8 }

// tableBytes is one version of a scheme's table for the VIP in a balancer. The
// data plane has room for two, so that it can swap them.
func (v *vip) tableBytes(scheme int, entries []uint32) int64 {
	n := v.size[v.number]
	members := make([]policy.Member, n)
	for i := range members {
		members[i] = policy.Member{Slot: uint16(i), Weight: 1}
	}
	slots := int64(len(policy.Table(policy.RR, members))) * 4
	if bytes, ok := map[string]int64{
		pcc.Hash:    slots,                          // a list of the servers that work
		pcc.Cheetah: slots + int64(v.capacity(n))*4, // and what packets without a cookie go by
		pcc.Beamer1: bucketBytes(v.Buckets*n, 1),
		pcc.Beamer3: bucketBytes(v.Buckets*n, 2),
	}[schemeNames[scheme]]; ok {
		return bytes
	}
	return int64(len(entries)) * 4
}

// flowSets is how large a flow table must be for so many live entries: one
// set each, of seven places, so that one entry in 14,000 finds its set
// full (docs/jet.md).
func flowSets(live float64) int { return int(live) + 1 }

// flowBytes is by scheme what its flow table takes in a balancer that has the
// greatest number of connections; 0: it has none.
func flowBytes(scheme string, live, trackedShare, all float64) int64 {
	t, ok := tracks[scheme]
	switch {
	case !ok:
		return 0
	case t.one:
		live = all
	case !t.all:
		live *= trackedShare
	}
	return int64(flowSets(live)) * flowSetBytes
}

// forgotten fills a flow table that is to hold so many live connections, as
// full-ct does: they come and go for a minute and send all the time. It returns
// the share of those that live at the end of which there is no entry.
func (d *Datacentre) forgotten(seed uint64, live float64) float64 {
	const units = 64 // of the table's time
	f := jet.NewFlows(flowSets(live))
	arrivals := workload.NewPoisson(sim.SplitMix(seed), live, d.Lifetimes.Distribution)
	next, _ := arrivals.Next()
	var here []workload.Connection
	lost := 0
	for unit := range uint16(units) {
		now := sim.Time(unit) * jet.Unit * sim.Millisecond
		for ; next.Start <= now; next, _ = arrivals.Next() {
			f.InsertLRU(next.Key, 1, unit, jet.New)
			here = append(here, next)
		}
		lost = 0
		here = slices.DeleteFunc(here, func(c workload.Connection) bool {
			known := f.Lookup(c.Key, unit) >= 0
			over := c.End() <= now
			switch {
			case over && known:
				jet.Touch(f.Find(c.Key, unit, true), unit, true, jet.Close, 0)
			case !over && !known:
				lost++
			}
			return over
		})
	}
	return float64(lost) / float64(max(1, len(here)))
}

// least and most of what balancers have, those alone that are there.
func spread(atEnd []int64, live []uint16) (least, mean, most float64) {
	var list []int64
	for _, b := range live {
		list = append(list, atEnd[b])
		mean += float64(atEnd[b]) / float64(len(live))
	}
	return float64(slices.Min(list)), mean, float64(slices.Max(list))
}
