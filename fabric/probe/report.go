package probe

import (
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
			return "the TTL is rewritten on the way: " + w.shift
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
		bad := func(i int) bool { return states[i].Verdict == kind.verdict }
		good := func(i int) bool { return states[i].Verdict == Good && states[i].Altered == "" }
		found = append(found, p.explain(kind.kind, bad, good, p.proven(kind.verdict), states)...)
	}
	altered := func(i int) bool { return states[i].Altered != "" }
	return states, append(found, p.explain(KindAltered, altered, func(i int) bool {
		return !altered(i) && states[i].Verdict == Good
	}, p.sameTTL(altered), states)...)
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

// explain blames links for the paths that are bad.
func (p *Prober) explain(kind Kind, bad, good func(int) bool, proven map[int]bool, states []State) (found []Finding) {
	var badAt []int
	var badLinks, goodLinks [][]int
	for i, l := range p.lanes {
		switch {
		case bad(i):
			badAt, badLinks = append(badAt, i), append(badLinks, l.links())
		case good(i):
			goodLinks = append(goodLinks, l.links())
		}
	}
	suspects, rest := blame(badLinks, goodLinks, proven)
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
	f.Detail = reasonOf(kind, &states[f.Paths[0]]) + "; each link of it is well by itself: the way back, a router on the way or the host's own load"
	return append(found, f)
}

func reasonOf(kind Kind, s *State) string {
	if kind == KindAltered {
		return s.Altered
	}
	return s.Reason
}

// proven are links that walks passed well since the paths over them are lost
// or slow.
func (p *Prober) proven(verdict Verdict) map[int]bool {
	well := map[int]bool{}
	for _, l := range p.lanes {
		if l.track.verdict != verdict {
			continue
		}
		for _, w := range l.walks {
			if w.right.After(l.track.since) && (verdict == Lost || w.rtt < l.track.last/2) {
				for _, link := range w.links {
					well[link] = true
				}
			}
		}
	}
	if verdict == Slow {
		for link := range p.fast {
			well[link] = true
		}
	}
	return well
}

// sameTTL are links over which walks ended where they should.
func (p *Prober) sameTTL(altered func(int) bool) map[int]bool {
	same := map[int]bool{}
	for i, l := range p.lanes {
		if !altered(i) || !strings.Contains(l.rewritten, "TTL") {
			continue
		}
		for _, w := range l.walks {
			if w.shift != "" {
				break // behind it nothing is certain
			}
			if w.right.After(l.track.since) {
				for _, link := range w.links {
					same[link] = true
				}
			}
		}
	}
	return same
}
