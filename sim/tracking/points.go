package tracking

import (
	"slices"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/vip"
)

// curve is a scheme over a hash, with a rule of what gives way.
type curve struct {
	scheme string
	hash   chash.Kind
	evict  string // empty: there is no table
}

// name is the curve's in figures: its scheme, over Anchor unless said; without
// a scheme that remembers, the hash alone.
func (c curve) name() string {
	if c.row().Forgets() {
		return string(c.hash)
	}
	name := c.scheme
	if c.hash != chash.KindAnchor {
		name += "-" + string(c.hash)
	}
	return name + c.unusual()
}

func (c curve) row() vip.SchemeRow { return vip.Scheme(c.scheme).Row() }

// unusual names a rule of what gives way that is not the scheme's default.
func (c curve) unusual() string {
	if c.evict == "" || c.evict == defaultEvict(c.scheme) {
		return ""
	}
	return "-" + c.evict
}

func defaultEvict(scheme string) string {
	return map[vip.Tracks]string{vip.Foreseen: EvictRank, vip.All: EvictLRU}[vip.Scheme(scheme).Row().Tracks]
}

// curves are all that were asked for, each once.
func (j *Jet) curves() []curve {
	var list []curve
	for _, h := range j.Hashes {
		for _, scheme := range j.Schemes {
			row := vip.Scheme(scheme).Row()
			rules := j.Evict
			if len(rules) == 0 || row.Forgets() {
				rules = []string{defaultEvict(scheme)}
			}
			for _, evict := range rules {
				if evict == EvictRank && !row.Foresees() {
					evict = defaultEvict(scheme)
				}
				if c := (curve{scheme, chash.Kind(h), evict}); !slices.Contains(list, c) {
					list = append(list, c)
				}
			}
		}
	}
	return list
}

// point is one run of a curve, but for the seed.
type point struct {
	curve
	kills   float64
	ratio   float64 // 0 where there is no table
	horizon int     // 0 where there is none
	active  int
	speak   string
}

// standard is the curve's point at which what is not swept stays.
func (j *Jet) standard(c curve) point {
	return point{
		curve: c, kills: pick(j.Kills, standardKills), ratio: pick(j.Ratios, standardRatio),
		horizon: pick(j.Horizons, standardHorizon), active: pick(j.Actives, standardActive), speak: j.Speak,
	}.plain()
}

// pick is the standard value if it is in the list, else the first.
func pick[T comparable](list []T, standard T) T {
	if slices.Contains(list, standard) {
		return standard
	}
	return list[0]
}

// plain leaves out what is of no consequence, so that the same runs are equal.
func (p point) plain() point {
	if !p.row().Foresees() {
		p.horizon = 0
	}
	if p.row().Forgets() {
		p.ratio, p.speak = 0, SpeakSame
	}
	return p
}

// sweep is one list of values.
type sweep struct {
	name, title string
	x           sim.Axis
	values      []float64
	set         func(p *point, value float64)
	note        string
}

func (j *Jet) sweeps() []sweep {
	list := []sweep{
		{
			name: "update-rate", title: "Broken connections by failures", x: sim.Axis{Label: "servers that fail", Unit: "1/min"},
			values: sorted(j.Kills), set: func(p *point, x float64) { p.kills = x },
		},
		{
			name: "table-ratio", title: "Broken connections by the size of the table", x: ratioAxis,
			values: sorted(j.Ratios), set: func(p *point, x float64) { p.ratio = x },
		},
		{
			name: "horizon", title: "Broken connections by the size of the horizon", x: sim.Axis{Label: "servers in the horizon"},
			values: sorted(j.Horizons), set: func(p *point, x float64) { p.horizon = int(x) },
		},
		{
			name: "active", title: "Broken connections by active connections", x: sim.Axis{Label: "active connections"},
			values: sorted(j.Actives), set: func(p *point, x float64) { p.active = int(x) },
		},
	}
	if j.Speak != SpeakNever && len(j.Ratios) > 1 {
		list = append(list, sweep{
			name: "table-ratio-silent", title: "Broken connections by the size of the table, if none speaks between its first and last packet", x: ratioAxis,
			values: sorted(j.Ratios), set: func(p *point, x float64) { p.ratio, p.speak = x, SpeakNever },
			note: "What a table that is too small for all is worth depends on how often connections speak: here never, else after each change.",
		})
	}
	return list
}

var ratioAxis = sim.Axis{Label: "entries for each active connection", Decimals: 2}

// sorted are the values from the least on, each once.
func sorted[T int | float64](list []T) []float64 {
	var values []float64
	for _, x := range list {
		values = append(values, float64(x))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// at is the curve's point at a value of the sweep.
func (j *Jet) at(c curve, s sweep, value float64) point {
	p := j.standard(c)
	s.set(&p, value)
	return p.plain()
}

// points are all that the figures need, each once, in a fixed order.
func (j *Jet) points() []point {
	var all []point
	known := map[point]bool{}
	add := func(p point) {
		if !known[p] {
			known[p] = true
			all = append(all, p)
		}
	}
	for _, c := range j.curves() {
		add(j.standard(c))
		for _, s := range j.sweeps() {
			for _, x := range s.values {
				add(j.at(c, s, x))
			}
		}
	}
	return all
}
