package pcc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// ScalingKind is scenario scaling: Cheetah's figure 9.
var ScalingKind = sim.Kind{
	Name:  "scaling",
	Short: "Cheetah's figure 9: servers added and drained while a web service's requests rise and fall",
	Long: `Requests of a web service for a minute, 1,500 to 2,500 a second; answers
take as long as the web-server distribution says, up to 150 s. Of 32 servers
24 work at the start; from second 20 to 40, 8 are added and 9 drain. Broken is
a request whose connection belongs to another server after a change; noticed,
one whose client got to know by a RST before its answer was complete.

'fairlead lab run scaling' carries the same schedule out on real packets and
shows both side by side.`,
	Example: `  fairlead sim scaling
  fairlead sim scaling --schemes hash,maglev,cheetah --seeds 20
  fairlead sim scaling --rate-factor 0.02 -o json`,
	Seeds: 5,
	New: func() sim.Scenario {
		return &scaling{schemes: scalingSchemes(), factor: 1, lifetimes: []float64{0.001, 0.002, 0.01, 0.1, 1, 10}}
	},
}

// scaling is the scenario with its options.
type scaling struct {
	schemes   []string
	factor    float64
	lifetimes []float64
}

// scalingSchemes are the schemes by default, worst first.
func scalingSchemes() []string {
	return []string{Hash, "ring", "table-hrw", "maglev", string(chash.KindBucket), Beamer1, Beamer3, JET, FullCT, Cheetah}
}

// maxRateFactor bounds how much faster than the paper's requests may come.
const maxRateFactor = 20

func (s *scaling) Flags(f *sim.Flags) {
	f.Add("schemes", &s.schemes, "schemes, comma-separated")
	f.Add("rate-factor", &s.factor, fmt.Sprintf("share of the paper's rate, at most %d", maxRateFactor))
	f.Add("lifetimes-factor", &s.lifetimes, "what the lifetimes are multiplied by in figure `lifetimes`, comma-separated")
}

func (s *scaling) Check() error {
	if !(s.factor > 0 && s.factor <= maxRateFactor) {
		return fmt.Errorf("--rate-factor %g: must be above 0 and at most %d", s.factor, maxRateFactor)
	}
	if len(s.schemes) == 0 {
		return fmt.Errorf("--schemes is empty: there are %s", strings.Join(scalingNames(), ", "))
	}
	for i, name := range s.schemes {
		if !slices.Contains(scalingNames(), name) {
			return fmt.Errorf("--schemes %s: there are %s", name, strings.Join(scalingNames(), ", "))
		}
		if slices.Contains(s.schemes[:i], name) {
			return fmt.Errorf("--schemes %s: named twice; leave one out", name)
		}
	}
	for _, l := range s.lifetimes {
		if !(l > 0 && l <= 10) {
			return fmt.Errorf("--lifetimes-factor %g: must be above 0 and at most 10", l)
		}
	}
	return nil
}

// scalingNames are the schemes that a schedule can be played against.
func scalingNames() []string { return append(Names(), string(chash.KindBucket)) }

func (s *scaling) Run(ctx context.Context, c sim.Common) (*sim.Result, error) {
	seeds := c.SeedList()
	schedule := CheetahSchedule()
	// Of each seed and scheme; and of each seed, lifetime and scheme.
	runs := make([][]*ScalingTally, len(seeds))
	others := make([][][]*ScalingTally, len(seeds))
	for i := range others {
		others[i] = make([][]*ScalingTally, len(s.lifetimes))
	}
	jobs := 1 + len(s.lifetimes)
	err := c.Each(ctx, len(seeds)*jobs, func(ctx context.Context, i int) (err error) {
		seed, k := i/jobs, i%jobs
		if k == 0 {
			runs[seed], err = schedule.PlayAll(ctx, seeds[seed], s.factor, s.schemes)
			return err
		}
		short := schedule
		short.Lifetimes = s.lifetimes[k-1]
		others[seed][k-1], err = short.PlayAll(ctx, seeds[seed], s.factor, s.schemes)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &sim.Result{Scenario: "scaling", Source: "Cheetah (NSDI'20), figure 9", Machine: sim.ThisMachine(), Seeds: seeds}
	s.describe(r, schedule)
	if err := s.samples(r, runs); err != nil {
		return nil, err
	}
	r.Figures = []sim.Figure{s.totals(runs), s.overTime(runs)}
	if len(s.lifetimes) > 0 {
		r.Figures = append(r.Figures, s.byLifetime(others))
	}
	s.check(r, runs, others)
	return r, nil
}

func (s *scaling) describe(r *sim.Result, schedule Schedule) {
	say := func(name, format string, args ...any) {
		r.Parameters = append(r.Parameters, sim.Parameter{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	say("servers", "%d, %d at the start", schedule.Servers, schedule.Active)
	say("requests a second", "%.0f to %.0f, for %d s", schedule.Rate.At(0)*s.factor, schedule.Rate.Peak*s.factor, schedule.Span/sim.Second)
	say("durations, sizes", "web-server; chunks of %d bytes over the duration", ChunkBytes)
	added := 0
	for _, step := range schedule.Steps {
		if step.Add {
			added++
		}
	}
	first, last := schedule.Steps[0].At, schedule.Steps[len(schedule.Steps)-1].At
	say("changes", "%d added, %d drained, from second %.0f to %.1f", added, len(schedule.Steps)-added,
		float64(first)/float64(sim.Second), float64(last)/float64(sim.Second))
	say("beamer", "%d buckets a server at the start, chain time %d s", DefaultBuckets, DefaultChainTime/sim.Second)
}

func (s *scaling) samples(r *sim.Result, runs [][]*ScalingTally) error {
	var requests, through int64
	for _, run := range runs {
		requests += int64(run[0].Requests)
		through += int64(run[0].Through)
	}
	r.Samples = []sim.Sample{{What: "requests", Count: requests}, {What: "connections that lived through a change", Count: through}}
	if through == 0 {
		return sim.NothingToSee(r.Scenario, "no connection lived through a change", "take a greater --rate-factor")
	}
	return nil
}

// scalingStat is the statistic over seeds of something of scheme number k.
func scalingStat(runs [][]*ScalingTally, k int, of func(*ScalingTally) float64) sim.Stat {
	return sim.StatOf(runs, func(run []*ScalingTally) float64 { return of(run[k]) })
}

func brokenShare(t *ScalingTally) float64  { return 100 * float64(t.Broken) / float64(t.Requests) }
func noticedShare(t *ScalingTally) float64 { return 100 * float64(t.Noticed) / float64(t.Requests) }

// scalingData is what the authors published of one run: errors of requests.
var scalingData = []struct {
	scheme           string
	errors, requests float64
}{
	{Hash, 997, 105241}, {"table-hrw", 715, 107352}, {Beamer1, 51, 105158}, {Cheetah, 0, 105053},
}

// totals is the figure of all that broke.
func (s *scaling) totals(runs [][]*ScalingTally) sim.Figure {
	f := sim.Figure{Name: "totals", Title: "Broken requests, of all", Bars: true, X: sim.Axis{Label: "scheme"},
		Y:    sim.Axis{Label: "share of requests", Unit: "%", Log: true, Decimals: 3},
		Note: "Broken: belonged to another server after a change. Noticed: the client got a RST before its answer was complete. The authors' errors are those of one run, whose clients notice later."}
	broken, noticed := sim.Series{Name: "broken", By: sim.Ours}, sim.Series{Name: "noticed", By: sim.Ours}
	data := sim.Series{Name: "noticed", By: sim.ByData}
	for k, name := range s.schemes {
		x := float64(k)
		broken.Points = append(broken.Points, sim.Point{X: x, Label: name, Y: scalingStat(runs, k, brokenShare)})
		noticed.Points = append(noticed.Points, sim.Point{X: x, Label: name, Y: scalingStat(runs, k, noticedShare)})
		for _, d := range scalingData {
			if d.scheme == name {
				data.Points = append(data.Points, sim.Point{X: x, Label: name, Y: sim.Value(100 * d.errors / d.requests)})
			}
		}
	}
	f.Series = []sim.Series{broken, noticed, data}
	return f
}

// Seconds that the figures over time show.
const scalingFrom, scalingTo = 15, 60

// overTime is the paper's figure.
func (s *scaling) overTime(runs [][]*ScalingTally) sim.Figure {
	f := sim.Figure{Name: "seconds", Title: "Requests noticed to be broken, of those that ended in the second", X: sim.Axis{Label: "time", Unit: "s"},
		Y:    sim.Axis{Label: "share of requests", Unit: "%", Log: true, Decimals: 2},
		Note: "Counted when clients notice. The paper's figure goes up to 11 % under hashing, 3 % under consistent hashing and 0.5 % under Beamer: its clients notice dozens of seconds later, so that its peaks are lower and longer."}
	for k, scheme := range s.schemes {
		series := sim.Series{Name: scheme, By: sim.Ours}
		for second := scalingFrom; second < scalingTo; second++ {
			series.Points = append(series.Points, sim.Point{X: float64(second), Y: scalingStat(runs, k, func(t *ScalingTally) float64 {
				return t.PerSecond[second].share()
			})})
		}
		f.Series = append(f.Series, series)
	}
	return f
}

// share is noticed requests of those that ended, in percent.
func (s ScalingSecond) share() float64 {
	return 100 * float64(s.Noticed) / float64(max(1, s.Noticed+s.Completed))
}

// byLifetime is what breaks where answers last less than the distribution
// says: the experiment on why the authors' counts are lower.
func (s *scaling) byLifetime(others [][][]*ScalingTally) sim.Figure {
	f := sim.Figure{Name: "lifetimes", Title: "Noticed requests, of all, if answers lasted a part of their duration",
		X: sim.Axis{Label: "lifetimes multiplied by", Log: true, Decimals: 3}, Y: sim.Axis{Label: "share of requests", Unit: "%", Log: true, Decimals: 3},
		Note: "The authors' counts are drawn where lifetimes are whole."}
	for k, scheme := range s.schemes {
		series := sim.Series{Name: scheme, By: sim.Ours}
		for l, x := range s.lifetimes {
			series.Points = append(series.Points, sim.Point{X: x, Y: scalingStat(atLifetime(others, l), k, noticedShare)})
		}
		f.Series = append(f.Series, series)
	}
	for _, d := range scalingData {
		if slices.Contains(s.schemes, d.scheme) {
			f.Series = append(f.Series, sim.Series{Name: d.scheme, By: sim.ByData, Points: []sim.Point{{X: 1, Y: sim.Value(100 * d.errors / d.requests)}}})
		}
	}
	return f
}

// atLifetime are the runs, by seed, of one factor of lifetimes.
func atLifetime(others [][][]*ScalingTally, l int) [][]*ScalingTally {
	runs := make([][]*ScalingTally, len(others))
	for i := range others {
		runs[i] = others[i][l]
	}
	return runs
}
