package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/soak"
)

func entry(version uint64, who string) Entry {
	return Entry{Version: version, Who: who + "@lab", Changes: []string{fmt.Sprint("change of ", who)}, Digest: fmt.Sprintf("d%d", version)}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func done(who string, call, end int, made ...uint64) Change {
	c := Change{Who: who, What: "drain", Call: ms(call), Return: ms(end), Outcome: Done, Made: map[uint64][]string{}}
	for _, v := range made {
		c.Made[v], c.To = []string{"change of " + who}, v
	}
	return c
}

func look(call, end int, entries ...Entry) Look {
	return Look{Call: ms(call), Return: ms(end), Entries: entries}
}

func sight(daemon string, at int, version uint64) Sight {
	return Sight{Daemon: daemon, Call: ms(at), Return: ms(at + 1), Version: version, Digest: fmt.Sprintf("d%d", version)}
}

// right is a history as it may be: two changes at a time, one of two versions, one of
// which nobody knows whether it was made and which was, one that was not, one refused,
// and what a controller did by itself.
func right() *History {
	one, two, three, four := entry(1, "begin"), entry(2, "a"), entry(3, "b"), entry(4, "b")
	five, six := entry(5, "controller ctl1"), entry(6, "c")
	five.Who = "controller ctl1"
	h := &History{
		First: []Entry{one},
		Changes: []Change{
			done("a", 10, 30, 2), done("b", 20, 60, 3, 4),
			{Who: "c", What: "rotate", Call: ms(70), Return: ms(80), Outcome: Unknown},
			{Who: "d", What: "rotate", Call: ms(70), Return: ms(80), Outcome: Unknown},
			{Who: "e", What: "drain", Call: ms(70), Return: ms(80), Outcome: Refused},
			{Who: "f", What: "undrain", Call: ms(95), Return: ms(99), Outcome: Done, To: 6},
		},
		Looks: []Look{
			look(5, 6, one), look(40, 45, one, two, three), look(62, 65, one, two, three, four),
			look(78, 85, one, two, three, four, five), look(90, 91, one, two, three, four, five, six),
		},
		Sights: []Sight{sight("lb1", 1, 1), sight("lb2", 2, 1), sight("lb1", 50, 3), sight("lb1", 51, 3), sight("server3", 52, 1), sight("lb1", 93, 6), sight("lb2", 94, 6)},
	}
	h.Changes[0].Without = []string{"server3"}
	return h
}

func TestRightHistory(t *testing.T) {
	if wrong := right().Check(time.Minute); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
}

// A store that is broken in any of these ways is found out.
func TestWrongHistories(t *testing.T) {
	const order = "the history is not linearizable"
	for name, c := range map[string]struct {
		spoil func(*History)
		want  string
	}{
		"an acknowledged change is lost": {func(h *History) {
			h.Changes = append(h.Changes, done("lost", 100, 110, 7))
			h.Looks = append(h.Looks, look(120, 121, h.Looks[4].Entries...))
		}, order},
		"an acknowledged change is lost, and another has its number": {func(h *History) {
			h.Changes = append(h.Changes, done("lost", 96, 97, 6))
		}, "by its answer it made versions [6], by the history []"},
		"two are told that they made one version": {func(h *History) {
			h.Changes[2] = done("c", 70, 95, 6)
			h.Changes[3] = done("d", 70, 95, 6)
		}, order},
		"a version that nobody made": {func(h *History) {
			h.Looks = append(h.Looks, look(100, 101, append(slices.Clone(h.Looks[4].Entries), entry(7, "stranger"))...))
		}, "nobody made version 7"},
		"a version before anybody asked for it": {func(h *History) {
			h.Looks[0] = h.Looks[1]
			h.Looks[0].Call, h.Looks[0].Return = ms(5), ms(6)
		}, order},
		"a stale read": {func(h *History) {
			h.Looks[4].Entries = h.Looks[4].Entries[:3]
			h.Looks = append(h.Looks, look(100, 101, right().Looks[4].Entries...))
		}, order},
		"a read that goes back": {func(h *History) {
			h.Looks = append(h.Looks, look(100, 101, right().Looks[4].Entries[:5]...))
		}, order},
		"a refused change was made": {func(h *History) { h.Changes[2].Outcome = Refused }, "the answer was that nothing was changed, and it made versions [6]"},
		"a change was made in part, and acknowledged whole": {func(h *History) {
			h.Changes[1].Made[5] = []string{"change of b"}
		}, "by its answer it made versions [3 4 5], by the history [3 4]"},
		"a version has another content than its maker was told": {func(h *History) {
			h.Changes[0].Made[2] = []string{"another change"}
		}, "its version 2 changes"},
		"a version is another one to some": {func(h *History) {
			h.Looks[4].Entries = slices.Clone(h.Looks[4].Entries)
			h.Looks[4].Entries[2].Digest = "d9"
		}, "one version is two"},
		"nothing was to do on an old version": {func(h *History) { h.Changes[5].To = 4 }, order},
		"two changes in another order than time's": {func(h *History) {
			// b began when a had been told that it made version 2.
			h.Changes[0], h.Changes[1] = done("a", 10, 12, 3), done("b", 20, 60, 2)
			two, three := entry(2, "b"), entry(3, "a")
			h.Looks = []Look{look(90, 91, h.First[0], two, three)}
			h.Changes, h.Sights = h.Changes[:2], nil
		}, order},
		"a daemon goes back": {func(h *History) { h.Sights = append(h.Sights, sight("lb1", 99, 5)) }, "lb1 went by version 6"},
		"a daemon does not have what was acknowledged": {func(h *History) {
			h.Changes[0].Without = nil
		}, "a (drain): version 2 was acknowledged at 0.0 s, and server3 goes by 1"},
		"a daemon goes by what the store never had": {func(h *History) {
			h.Sights = append(h.Sights, sight("lb2", 99, 8))
		}, "lb2 went by version 8"},
		"a daemon goes by another version of that number": {func(h *History) { h.Sights[2].Digest = "d9" }, "lb1 went by version 3 with digest d9"},
		"a daemon goes by a version before it was asked for": {func(h *History) {
			h.Sights = slices.Insert(h.Sights, 0, sight("server1", 5, 3))
		}, order},
	} {
		t.Run(name, func(t *testing.T) {
			h := right()
			c.spoil(h)
			if wrong := h.Check(time.Minute); !strings.Contains(strings.Join(wrong, "\n"), c.want) {
				t.Errorf("%q, want %q", wrong, c.want)
			}
		})
	}
}

// Histories of a store that works, of many operators at a time whose answers get lost,
// are found right; and none is when one of its acknowledged changes is taken out of
// what was read since, or a read is older than its time.
func TestDrawnHistories(t *testing.T) {
	r := soak.Rand(t)
	for range 30 {
		h := drawn(r)
		if wrong := h.Check(time.Minute); len(wrong) > 0 {
			t.Fatal(strings.Join(wrong, "\n"))
		}
		last := &h.Looks[len(h.Looks)-1]
		whole := last.Entries
		var acknowledged []int
		for i, e := range whole {
			for _, c := range h.Changes {
				if c.Who == e.maker() && c.Outcome == Done {
					acknowledged = append(acknowledged, i)
				}
			}
		}
		at := acknowledged[r.IntN(len(acknowledged))]
		last.Entries = slices.Clone(whole[:at])
		if wrong := h.Check(time.Minute); len(wrong) == 0 {
			t.Fatalf("version %d of %d was lost, and nobody noticed", at+1, len(whole))
		}
	}
}

// drawn is a history that a store which works could have made.
func drawn(r *rand.Rand) *History {
	entries := []Entry{entry(1, "begin")}
	h := &History{First: slices.Clone(entries)}
	for now := 10; now < 1000; now += 1 + r.IntN(20) {
		if r.IntN(3) == 0 {
			h.Looks = append(h.Looks, look(now-r.IntN(30), now+r.IntN(30), slices.Clone(entries)...))
			continue
		}
		who := fmt.Sprint("operator", now)
		c := Change{Who: who, Call: ms(now - r.IntN(50)), Return: ms(now + r.IntN(50)), Outcome: Done, Made: map[uint64][]string{}}
		happens := r.IntN(5) > 0
		if !happens || r.IntN(4) == 0 {
			c.Outcome = Unknown
		}
		for range 1 + r.IntN(3) {
			if happens {
				e := entry(uint64(len(entries))+1, who)
				entries = append(entries, e)
				c.Made[e.Version], c.To = e.Changes, e.Version
			}
		}
		h.Changes = append(h.Changes, c)
	}
	h.Looks = append(h.Looks, look(2000, 2001, entries...))
	return h
}
