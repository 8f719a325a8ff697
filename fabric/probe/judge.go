package probe

import (
	"fmt"
	"time"
)

// How many probes in a row make a path bad, and how many good ones make it good
// again: it is left at once, and trusted again only when it has been well for
// a while.
const (
	badInRow  = 3
	goodInRow = 20
	// firstGood is how many make a path good that was not judged before.
	firstGood = 3
)

// A probe is slow if it took slowFactor times what the best path of the same
// round took, and slowMargin more: below that the difference is a scheduler's.
const (
	slowFactor = 3
	slowMargin = 2 * time.Millisecond
)

// noAnswer is why, where nobody said why.
const noAnswer = "probes have no answer"

// outcome is one probe, judged.
type outcome struct {
	answered bool
	rtt      time.Duration
	// why a probe without an answer has none, where something said so.
	why string
}

// track follows the verdict of one path.
type track struct {
	verdict Verdict
	since   time.Time
	reason  string

	bad, good int // in a row
	astray    string
	next      Verdict // of the bad probes in a row, the last one's
	why       string

	sent, answered uint64
	least, last    time.Duration
	sum            time.Duration
}

// judge takes in a probe; best is the round trip of the best path to the same
// target in the same round, 0 if none was answered. It says whether the
// verdict changed.
func (t *track) judge(o outcome, best time.Duration, now time.Time) bool {
	t.sent++
	switch {
	case !o.answered:
		t.bad, t.good, t.next = t.bad+1, 0, Lost
		if t.why = o.why; o.why == "" {
			t.why = noAnswer
		}
	case o.rtt > slowFactor*best && o.rtt > best+slowMargin:
		t.count(o.rtt)
		t.bad, t.good, t.next = t.bad+1, 0, Slow
		if t.verdict != Slow { // else the reason stays as it was
			t.why = fmt.Sprintf("takes %v, the best path %v", o.rtt.Round(10*time.Microsecond), best.Round(10*time.Microsecond))
		}
	default:
		t.count(o.rtt)
		t.bad, t.good = 0, t.good+1
	}
	return t.decide(now)
}

// skip takes in a probe that says nothing of its path.
func (t *track) skip() { t.sent++ }

func (t *track) count(rtt time.Duration) {
	if t.answered == 0 || rtt < t.least {
		t.least = rtt
	}
	t.answered++
	t.sum += rtt
	t.last = rtt
}

// decide is the one door through which the verdict changes.
//
//	unknown ──3 good──▶ good ──3 bad──▶ lost or slow ──20 good──▶ good
//	   └──────3 bad──▶ lost or slow
//
// A good path over other routers than the chosen ones is astray.
func (t *track) decide(now time.Time) bool {
	verdict, reason := t.verdict, t.reason
	needed := goodInRow
	if verdict == Unknown {
		needed = firstGood
	}
	switch {
	case t.bad >= badInRow:
		verdict, reason = t.next, t.why
		if t.astray != "" {
			reason += "; " + t.astray
		}
	case verdict != Good && verdict != Astray && t.good < needed:
		if t.good > 0 && verdict != Unknown {
			reason = fmt.Sprintf("well again; counts as good after %d good probes in a row", goodInRow)
		}
	default:
		verdict, reason = Good, ""
		if t.astray != "" {
			verdict, reason = Astray, t.astray
		}
	}
	changed := verdict != t.verdict
	if changed {
		t.since = now
	}
	t.verdict, t.reason = verdict, reason
	return changed
}

// leads takes in what a walk saw: why the path is not the one chosen, "" if it
// is. It says whether the verdict changed.
func (t *track) leads(astray string, now time.Time) bool {
	t.astray = astray
	return t.decide(now)
}

func (t *track) mean() time.Duration {
	if t.answered == 0 {
		return 0
	}
	return t.sum / time.Duration(t.answered)
}
