package datacentre

import "math"

// tally is what one VIP's day comes to, or (sum) that of all VIPs of a seed.
// Slices by scheme are in the order of schemeNames.
type tally struct {
	// opened connections, those that were over before anybody looked included.
	opened int64
	// drawn of them.
	drawn int64
	// versions of VIPs' pools; through counts connections that lived at them.
	versions, through int64
	lookups           int64
	broken            [][]int64 // by scheme and hour
	died              []int64   // by scheme: with their server
	tracked           float64   // the greatest share that jet had in flow tables; of a sum: connections
	control           control
	memory            []int64 // by scheme: bytes of its tables in a balancer
	// full is by scheme what an assignment takes at the end of the day, as the
	// product hands it out: the whole of it.
	full []int64
	// atEnd is how many connections each balancer has at the end.
	atEnd []int64
	// bytes that one VIP's run takes, of a sum: the largest's.
	bytes int64
}

func newTally(s *site) tally {
	n := len(schemeNames)
	t := tally{
		broken: make([][]int64, n), died: make([]int64, n), control: newControl(),
		memory: make([]int64, n), full: make([]int64, n), atEnd: make([]int64, s.Balancers),
	}
	for k := range t.broken {
		t.broken[k] = make([]int64, s.hours())
	}
	return t
}

// hours are those begun.
func (d *Datacentre) hours() int { return int(math.Ceil(d.Hours)) }

// close counts what can be known at the end alone.
func (v *vip) close() {
	t := &v.tally
	t.drawn = v.pop.opened
	t.opened = v.pop.opened + v.poisson()
	t.versions = int64(v.pool.Version)
	for _, via := range v.pop.via {
		t.atEnd[via]++
	}
	slots := v.assignment(nil)
	for i, h := range v.tables() {
		t.full[i] = slots
		t.memory[i] = v.tableBytes(i, h.entries)
		if h.buckets != nil {
			t.full[i] = v.assignment(h.buckets)
		}
	}
	t.bytes = v.bytes()
}

// add sums a VIP up, of so many connections in the mean.
func (t *tally) add(o *tally, active float64) {
	t.opened, t.drawn = t.opened+o.opened, t.drawn+o.drawn
	t.versions, t.through, t.lookups = t.versions+o.versions, t.through+o.through, t.lookups+o.lookups
	t.tracked += o.tracked * active
	t.control.add(&o.control)
	for k := range schemeNames {
		for h, n := range o.broken[k] {
			t.broken[k][h] += n
		}
		t.died[k] += o.died[k]
		t.memory[k] += o.memory[k]
		t.full[k] += o.full[k]
	}
	for b, n := range o.atEnd {
		t.atEnd[b] += n
	}
	t.bytes = max(t.bytes, o.bytes)
}

// brokenOf is how many connections a scheme broke.
func (t *tally) brokenOf(scheme int) (n int64) {
	for _, hour := range t.broken[scheme] {
		n += hour
	}
	return n
}

// share is a scheme's broken connections in percent of all.
func (t *tally) share(scheme int) float64 {
	return 100 * float64(t.brokenOf(scheme)) / float64(max(1, t.opened))
}

// Bytes a connection of the simulation takes: start, end, key and balancer, and
// for each scheme its server, where its packet ended, and a note.
func connBytes() int64 { return 8 + 8 + 8 + 2 + int64(len(schemeNames))*(2+2+4) }

// bytes is what the VIP's run holds at most, by its structures: the columns of
// its population (which grow by a quarter when they are full), and what the
// schemes hold of a version, twice.
func (v *vip) bytes() int64 {
	b := int64(cap(v.pop.key)) * connBytes()
	for _, h := range v.tables() {
		if h.buckets != nil {
			b += 2 * int64(h.buckets.Len()) * bucketModelBytes
		}
		b += 2 * 4 * int64(len(h.entries))
	}
	return b
}

// bucketModelBytes is a bucket of controller/buckets: current server, time, and
// the previous ones.
const bucketModelBytes = 2 + 4 + 2*3
