package probe

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is what is wrong with a link.
type Kind string

// The kinds of findings.
const (
	KindLost    Kind = "lost"    // packets are lost on it
	KindSlow    Kind = "slow"    // it is slower than others
	KindUnused  Kind = "unused"  // the router before it does not use it: its hop is gone, or it reads no selectors
	KindAltered Kind = "altered" // a TTL, address, port or label is rewritten on it, or at its ends
)

// Finding is what explains bad paths.
type Finding struct {
	Kind Kind
	// Links are indices into Fabric.Links. Several: one of them, and nothing
	// that was sent tells which. None: no link explains it.
	Links []int
	// Paths are indices into States.
	Paths []int
	// Detail says it in words.
	Detail string
}

// States are the paths as they are now, target by target.
func (p *Prober) States() []State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.states()
}

func (p *Prober) states() []State {
	best := p.bestRates()
	states := make([]State, len(p.lanes))
	for i, l := range p.lanes {
		t := &l.track
		s := State{
			Target: l.target, Path: l.path, Verdict: t.verdict, Since: t.since, Reason: t.reason,
			Sent: t.sent, Answered: t.answered, RTTMin: t.least, RTTMean: t.mean(), RTTLast: t.last,
			Flow: l.flow, TTL: l.ttl, Rates: l.rates, Altered: l.rewritten,
		}
		if l.socket == nil {
			s.Reason = l.why
		} else if p.silent[l.target] >= badInRow {
			s.Silent = cmp.Or(l.why, noAnswer)
		}
		if slow := l.rates.slow(best[l.target]); slow != "" && s.Verdict == Good {
			s.Verdict, s.Reason = Slow, slow
		}
		if shift := l.shifted(); shift != "" {
			s.Altered = strings.TrimPrefix(s.Altered+"; "+shift, "; ")
		}
		states[i] = s
	}
	return states
}

// shifted says where walks found the lane's TTL rewritten, "" if nowhere.
func (l *lane) shifted() string {
	for _, w := range l.walks {
		if w.shift != "" {
			return w.shift
		}
	}
	return ""
}

// Report is what is known of all paths now, and the links that explain what is
// wrong with them.
func (p *Prober) Report() ([]State, []Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := p.states()
	var found []Finding
	found = append(found, p.unused()...)
	for _, kind := range []struct {
		kind    Kind
		verdict Verdict
	}{{KindLost, Lost}, {KindSlow, Slow}} {
		bad := func(i int) bool { return states[i].Verdict == kind.verdict && !p.lanes[i].recovers() }
		good := func(i int) bool { return states[i].Verdict == Good && states[i].Altered == "" }
		seen := func(l *lane) evidence { return p.gather(l, kind.verdict) }
		found = append(found, p.explain(kind.kind, bad, good, seen, states)...)
	}
	altered := func(i int) bool { return states[i].Altered != "" }
	return states, append(found, p.explain(KindAltered, altered, func(i int) bool {
		return !altered(i) && states[i].Verdict == Good
	}, (*lane).shifts, states)...)
}

// unused are links over which routers do not send what is told to take them.
func (p *Prober) unused() (found []Finding) {
	for i, l := range p.lanes {
		w := l.leaves()
		if w == nil || l.track.verdict != Astray {
			continue
		}
		link := w.links[len(w.links)-1]
		at := slices.IndexFunc(found, func(f Finding) bool { return f.Links[0] == link })
		if at < 0 {
			found = append(found, Finding{Kind: KindUnused, Links: []int{link}, Detail: l.track.astray})
			at = len(found) - 1
		}
		found[at].Paths = append(found[at].Paths, i)
	}
	return found
}

// recovers says whether the lane is bad by its verdict alone, and its last
// probes were good.
func (l *lane) recovers() bool {
	return (l.track.verdict == Lost || l.track.verdict == Slow) && l.track.bad == 0
}

// explain blames links for the paths that are bad, by good paths and by what
// walks saw.
func (p *Prober) explain(kind Kind, bad, good func(int) bool, seen func(*lane) evidence, states []State) (found []Finding) {
	var badAt []int
	var badLinks, goodLinks [][]int
	for i, l := range p.lanes {
		switch {
		case bad(i):
			e := seen(l)
			links := l.links()
			if e.culprit >= 0 {
				links = []int{e.culprit}
			}
			badAt, badLinks, goodLinks = append(badAt, i), append(badLinks, links), append(goodLinks, e.well)
		case good(i):
			goodLinks = append(goodLinks, l.links())
		}
	}
	suspects, rest := blame(badLinks, goodLinks)
	for _, s := range suspects {
		f := Finding{Kind: kind, Links: s.Links}
		for _, i := range s.Paths {
			f.Paths = append(f.Paths, badAt[i])
		}
		f.Detail = reasonOf(kind, &states[f.Paths[0]])
		found = append(found, f)
	}
	if len(rest) == 0 {
		return found
	}
	f := Finding{Kind: kind}
	for _, i := range rest {
		f.Paths = append(f.Paths, badAt[i])
	}
	f.Detail = reasonOf(kind, &states[f.Paths[0]])
	if p.lanes[f.Paths[0]].reached {
		return append(found, f)
	}
	f.Detail += "; each link of it is well by itself: the way back, a router on the way or the host's own load"
	return append(found, f)
}

func reasonOf(kind Kind, s *State) string {
	if kind == KindAltered {
		return s.Altered
	}
	return s.Reason
}

// evidence is what walks say about the links of a lost or slow lane: those
// that they passed well, and the one behind which they did not (-1: unknown).
type evidence struct {
	well    []int
	culprit int
}

// gather collects evidence about a lane. A router that was silent may be one
// that never answers: it accuses the link before it only if it once did, or if
// all the others do.
func (p *Prober) gather(l *lane, verdict Verdict) evidence {
	if l.reached {
		return evidence{well: l.links(), culprit: -1}
	}
	if verdict == Lost && l.passed > 0 { // a router on the way says so itself
		links := l.links()
		return evidence{well: links[:l.passed], culprit: links[l.passed]}
	}
	e := evidence{culprit: -1}
	sure := true // all walks so far were well
	for _, w := range l.walks {
		last := w.links[len(w.links)-1]
		switch w.tells(l, verdict) {
		case wellSign:
			e.well, sure = w.links, true
		case badSign:
			if sure && (verdict == Slow || w.wrong > 0 || !w.right.IsZero() || p.talkative()) {
				e.culprit = last
			}
			return e
		default:
			sure = false
		}
	}
	if sure && len(l.walks) == len(l.over.Hops)-1 {
		e.culprit = l.over.Hops[len(l.over.Hops)-1].Link
	}
	return e
}

// sign is what a walk says about the way to its router.
type sign int

const (
	noSign sign = iota
	wellSign
	badSign
)

// tells says it for a lane that is lost or slow.
func (w *walker) tells(l *lane, verdict Verdict) sign {
	switch {
	case w.wrong >= wrongInRow && w.at >= 0:
		return badSign
	case verdict == Slow && w.tail != noSign && l.track.verdict != Slow:
		return w.tail
	case !w.right.After(l.track.since):
		if verdict == Lost && w.silent >= wrongInRow {
			return badSign
		}
		return noSign
	case verdict == Slow && l.track.verdict != Slow:
		return noSign // its trains are slow, and small walks pass
	case verdict == Slow && w.rtt > l.track.last/2:
		return badSign
	}
	return wellSign
}

// talkative says whether all routers on good paths that were asked answer.
func (p *Prober) talkative() bool {
	asked := false
	for _, l := range p.lanes {
		if l.track.verdict != Good {
			continue
		}
		for _, w := range l.walks {
			if w.right.IsZero() && w.silent > 0 {
				return false
			}
			asked = asked || !w.right.IsZero()
		}
	}
	return asked
}

// shifts is where walks found the lane's TTL rewritten: on the way to the first
// router that was not where it should be.
func (l *lane) shifts() evidence {
	for _, w := range l.walks {
		if w.shift != "" {
			return evidence{culprit: w.links[len(w.links)-1]}
		}
	}
	return evidence{culprit: -1}
}
