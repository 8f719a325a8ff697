package tracking

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/sim"
)

// JetSource is what the scenario repeats.
const JetSource = "JET (CoNEXT'21), slides \"PCC Violations\" and the authors' event simulation"

func (j *Jet) result(found outcomes, seeds []uint64) (*sim.Result, error) {
	r := &sim.Result{
		Scenario: "jet", Source: JetSource, Machine: sim.ThisMachine(), Seeds: seeds,
		Parameters: j.parameters(), Samples: samples(found, j.points()),
	}
	if err := j.nothingToSee(found); err != nil {
		return nil, err
	}
	r.Figures = append(r.Figures, j.standardFigure(found))
	for _, s := range j.sweeps() {
		if len(s.values) > 1 {
			r.Figures = append(r.Figures, j.sweepFigure(found, s))
		}
	}
	if len(j.Ratios) > 1 {
		r.Figures = append(r.Figures, j.entriesFigure(found))
	}
	if slices.Contains(j.Schemes, SchemeJET) {
		r.Figures = append(r.Figures, j.trackedFigure(found))
	}
	r.Checks = j.checks(found)
	return r, nil
}

func (j *Jet) parameters() []sim.Parameter {
	p := j.standard(curve{scheme: SchemeJET})
	var curves []string
	for _, c := range j.curves() {
		curves = append(curves, c.name())
	}
	standard := fmt.Sprintf("%g failures a minute, table of %g of the active connections, horizon %d, %s active", p.kills, p.ratio, p.horizon, sim.Grouped(float64(p.active), 0))
	return []sim.Parameter{
		{Name: "servers", Value: strconv.Itoa(j.Servers)},
		{Name: "simulated time", Value: fmt.Sprintf("%d s", j.Seconds)},
		{Name: "lifetimes", Value: durations(j.Lifetimes.Name, j.Lifetimes.Mean())},
		{Name: "downtimes", Value: durations(j.Downtimes.Name, j.Downtimes.Mean())},
		{Name: "warm-up", Value: fmt.Sprintf("%d s", j.WarmUp)},
		{Name: "packets after a change", Value: j.Speak},
		{Name: "curves", Value: strings.Join(curves, ", ")},
		{Name: "standard point", Value: standard},
		{Name: "failures", Value: numbers(sorted(j.Kills), ", ") + " a minute"},
		{Name: "table", Value: numbers(sorted(j.Ratios), ", ") + " of the active connections"},
		{Name: "horizon", Value: numbers(sorted(j.Horizons), ", ") + " servers"},
		{Name: "active connections", Value: numbers(sorted(j.Actives), ", ")},
	}
}

func durations(name string, mean float64) string {
	return fmt.Sprintf("%s, mean %.3f s", name, mean/float64(sim.Second))
}

// nothingToSee is the error of a run in which nothing could have broken: only
// servers that come back take connections away.
func (j *Jet) nothingToSee(found outcomes) error {
	returns, without := 0, 0
	for _, p := range j.points() {
		for _, o := range found[p] {
			returns += o.additions
			if p.row().Forgets() {
				without += o.broken
			}
		}
	}
	switch {
	case returns == 0:
		return sim.NothingToSee("jet", "no server that failed came back", "raise --seconds (it takes minutes) or --kills")
	case without == 0 && slices.Contains(j.Schemes, SchemeStateless):
		return sim.NothingToSee("jet", "no connection broke even without memory", "raise --active, --seconds or --kills")
	}
	return nil
}

// samples sum all runs up.
func samples(found outcomes, points []point) []sim.Sample {
	var connections, kills, additions, unforeseen, lived int64
	for _, p := range points {
		for _, o := range found[p] {
			connections += int64(o.connections)
			kills += int64(o.kills)
			additions += int64(o.additions)
			unforeseen += int64(o.unforeseen)
			lived += int64(o.live)
		}
	}
	return []sim.Sample{
		{What: "connections, in all runs", Count: connections},
		{What: "failures of servers", Count: kills},
		{What: "returns of servers", Count: additions},
		{What: "returns that the horizon did not foresee", Count: unforeseen},
		{What: "connections looked up after a change", Count: lived},
	}
}

func brokenCount(o outcome) float64 { return float64(o.broken) }

// brokenShare is in % of all connections.
func brokenShare(o outcome) float64 {
	return 100 * float64(o.broken) / float64(max(1, o.connections))
}

// standardFigure counts what breaks at the standard point, by hash.
func (j *Jet) standardFigure(found outcomes) sim.Figure {
	f := sim.Figure{
		Name: "standard", Title: "Broken connections of a run at the standard point", Bars: true,
		X: sim.Axis{Label: "hash"}, Y: sim.Axis{Label: "broken connections of a run", Log: true, Decimals: 1},
	}
	var names []string
	for _, c := range j.curves() {
		name := c.scheme + c.unusual()
		i := slices.Index(names, name)
		if i < 0 {
			i = len(names)
			names = append(names, name)
			f.Series = append(f.Series, sim.Series{Name: name, By: sim.Ours})
		}
		y := sim.StatOf(found[j.standard(c)], brokenCount)
		f.Series[i].Points = append(f.Series[i].Points, sim.Point{X: float64(len(f.Series[i].Points)), Label: string(c.hash), Y: y})
	}
	if j.asAuthors() {
		f.Series = append(f.Series, reportedBroken(names)...)
		f.Note = reportedNote
	}
	return f
}

// asAuthors tells whether the standard point is the one at which the authors'
// program was run.
func (j *Jet) asAuthors() bool {
	p := j.standard(curve{scheme: SchemeJET})
	return p.kills == standardKills && p.ratio == standardRatio && p.horizon == standardHorizon && p.active == standardActive &&
		j.Servers == standardServers && j.Speak == SpeakSame && j.Seconds == standardSeconds && j.Lifetimes.Name == "hadoop" && j.Downtimes.Name == "downtime"
}

func (j *Jet) sweepFigure(found outcomes, s sweep) sim.Figure {
	f := sim.Figure{
		Name: s.name, Title: s.title, X: s.x, Y: sim.Axis{Label: "broken connections", Unit: "%", Log: true, Decimals: 4}, Note: s.note,
	}
	for _, c := range j.curves() {
		f.Series = append(f.Series, sim.Curve(c.name(), s.values, func(x float64) sim.Stat { return sim.StatOf(found[j.at(c, s, x)], brokenShare) }))
	}
	return f
}

// entriesFigure is how much of the table is in use.
func (j *Jet) entriesFigure(found outcomes) sim.Figure {
	s := j.sweep("table-ratio")
	f := sim.Figure{
		Name: "entries", Title: "Entries in use, of the tables of these sizes", X: s.x,
		Y:    sim.Axis{Label: "entries for 100 live connections", Decimals: 1},
		Note: "The mean over all changes of the pool.",
	}
	for _, c := range j.curves() {
		if c.row().Forgets() {
			continue
		}
		f.Series = append(f.Series, sim.Curve(c.name(), s.values, func(x float64) sim.Stat { return sim.StatOf(found[j.at(c, s, x)], usedShare) }))
	}
	return f
}

// usedShare is in % of the live connections.
func usedShare(o outcome) float64 { return 100 * float64(o.used) / float64(max(1, o.live)) }

// trackedFigure is the share of connections that JET wants tracked when they
// arrive, beside what the paper says.
func (j *Jet) trackedFigure(found outcomes) sim.Figure {
	s := j.sweep("horizon")
	f := sim.Figure{
		Name: "tracked", Title: "Connections that JET tracks", X: s.x,
		Y:    sim.Axis{Label: "tracked connections", Unit: "%", Decimals: 2},
		Note: "Marks: |H| / (|W| + |H|) of the paper, over the servers that worked when each connection arrived.",
	}
	for _, c := range j.curves() {
		if !c.row().Foresees() {
			continue
		}
		ours := sim.Curve(c.name(), s.values, func(x float64) sim.Stat { return sim.StatOf(found[j.at(c, s, x)], wantedShare) })
		theirs := sim.Curve(c.name(), s.values, func(x float64) sim.Stat { return sim.Value(sim.StatOf(found[j.at(c, s, x)], expectedShare).Mean) })
		theirs.By = sim.ByPaper
		f.Series = append(f.Series, ours, theirs)
	}
	return f
}

// sweep is the one of a name.
func (j *Jet) sweep(name string) sweep {
	i := slices.IndexFunc(j.sweeps(), func(s sweep) bool { return s.name == name })
	return j.sweeps()[i]
}

// wantedShare and expectedShare are in % of all connections.
func wantedShare(o outcome) float64   { return 100 * float64(o.wanted) / float64(max(1, o.connections)) }
func expectedShare(o outcome) float64 { return 100 * o.expected / float64(max(1, o.connections)) }
