package probe

import (
	"testing"
	"time"
)

// A path is left after three bad probes in a row, and trusted after twenty good
// ones; a path that nobody knows yet after three.
func TestJudge(t *testing.T) {
	good := outcome{answered: true, rtt: time.Millisecond}
	slow := outcome{answered: true, rtt: 4 * time.Millisecond}
	lost := outcome{}
	type step struct {
		times int
		o     outcome
		want  Verdict
	}
	for name, steps := range map[string][]step{
		"becomes good":             {{2, good, Unknown}, {1, good, Good}},
		"never answered":           {{2, lost, Unknown}, {1, lost, Lost}},
		"two lost are chance":      {{3, good, Good}, {2, lost, Good}, {1, good, Good}, {2, lost, Good}},
		"three lost":               {{3, good, Good}, {3, lost, Lost}, {19, good, Lost}, {1, good, Good}},
		"a lost one begins anew":   {{3, good, Good}, {3, lost, Lost}, {19, good, Lost}, {1, lost, Lost}, {19, good, Lost}, {1, good, Good}},
		"slow":                     {{3, good, Good}, {2, slow, Good}, {1, slow, Slow}, {20, good, Good}},
		"lost and slow are bad":    {{3, good, Good}, {2, lost, Good}, {1, slow, Slow}, {1, lost, Lost}},
		"good and slow in between": {{3, good, Good}, {2, slow, Good}, {1, good, Good}, {2, slow, Good}},
	} {
		t.Run(name, func(t *testing.T) {
			p := track{verdict: Unknown}
			now := time.Unix(0, 0)
			for i, s := range steps {
				for range s.times {
					now = now.Add(time.Second)
					before := p.verdict
					if changed := p.judge(s.o, time.Millisecond, now); changed != (p.verdict != before) {
						t.Errorf("step %d: changed is %v, verdict %s after %s", i, changed, p.verdict, before)
					}
				}
				if p.verdict != s.want {
					t.Fatalf("step %d: verdict %s, want %s", i, p.verdict, s.want)
				}
				if (p.reason == "") != (p.verdict == Good || p.verdict == Unknown) {
					t.Errorf("step %d: verdict %s because %q", i, p.verdict, p.reason)
				}
			}
		})
	}
}

// Slow means both: three times the best, and two milliseconds more.
func TestJudgeSlow(t *testing.T) {
	for _, c := range []struct {
		rtt, best time.Duration
		slow      bool
	}{
		{2900 * time.Microsecond, time.Millisecond, false}, // not three times
		{3100 * time.Microsecond, time.Millisecond, true},
		{1900 * time.Microsecond, 100 * time.Microsecond, false}, // less than 2 ms more
		{2200 * time.Microsecond, 100 * time.Microsecond, true},
		{20 * time.Millisecond, 10 * time.Millisecond, false},
	} {
		p := track{verdict: Good}
		for range badInRow {
			p.judge(outcome{answered: true, rtt: c.rtt}, c.best, time.Unix(1, 0))
		}
		if got := p.verdict == Slow; got != c.slow {
			t.Errorf("round trip %v, best %v: slow is %v, want %v", c.rtt, c.best, got, c.slow)
		}
	}
}

// A path that answers but runs elsewhere is astray; one that loses is lost.
func TestJudgeAstray(t *testing.T) {
	p := track{verdict: Good}
	now := time.Unix(1, 0)
	if !p.leads("leaf1 does not send it to spine1", now) || p.verdict != Astray {
		t.Fatalf("verdict %s, want astray", p.verdict)
	}
	p.judge(outcome{answered: true, rtt: time.Millisecond}, time.Millisecond, now)
	if p.verdict != Astray {
		t.Errorf("verdict %s after an answer, want astray", p.verdict)
	}
	for range badInRow {
		p.judge(outcome{}, 0, now)
	}
	if p.verdict != Lost {
		t.Errorf("verdict %s after losses, want lost", p.verdict)
	}
	if p.leads("", now); p.verdict != Lost {
		t.Errorf("verdict %s: a walk alone makes no lost path good", p.verdict)
	}
}
