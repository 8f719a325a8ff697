package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// History is what was asked of a deployment, and what was seen of it. Times are since
// its begin, by one clock.
type History struct {
	// First is what the store had before.
	First   []Entry
	Changes []Change
	Looks   []Look
	Sights  []Sight
}

// Entry is a version as `fairlead history -o json` has it.
type Entry struct {
	Version uint64   `json:"version"`
	Who     string   `json:"who"`
	Changes []string `json:"changes"`
	Digest  string   `json:"digest"`
}

// maker is who made it: the operator's name, without that of the machine.
func (e *Entry) maker() string { name, _, _ := strings.Cut(e.Who, "@"); return name }

// tidied: a controller made it, by itself.
func (e *Entry) tidied() bool { return strings.HasPrefix(e.Who, "controller ") }

// content is all of it.
func (e *Entry) content() string {
	return fmt.Sprintf("version %d by %s, digest %s: %s", e.Version, e.Who, e.Digest, strings.Join(e.Changes, "; "))
}

// Outcome is what became of a change.
type Outcome string

const (
	// Done: acknowledged.
	Done Outcome = "done"
	// Refused: the answer is that nothing was changed, as the store was away.
	Refused Outcome = "refused"
	// Unknown: any other failure; it may have been made, in part or whole, now or later.
	Unknown Outcome = "unknown"
)

// Change is a command of an operator's.
type Change struct {
	// Who made it: of no other change.
	Who          string
	What         string
	Call, Return time.Duration
	Outcome      Outcome
	// To is the newest version, by an answer that is Done; Made what each version
	// changed that it says it made.
	To   uint64
	Made map[uint64][]string
	// Without are daemons that, by the answer, did not answer; all others have it.
	Without []string
}

// Look is one at the store's whole history.
type Look struct {
	Call, Return time.Duration
	Entries      []Entry
}

// Sight is what a daemon said that its packets go by.
type Sight struct {
	Daemon       string
	Call, Return time.Duration
	Version      uint64
	Digest       string
}

// Check says what is wrong: not linearizable, lost, invented, or twice.
func (h *History) Check(limit time.Duration) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	entries := h.entries(say)
	made := map[string][]uint64{} // by whom
	for _, v := range sortedKeys(entries) {
		e := entries[v]
		made[e.maker()] = append(made[e.maker()], v)
	}
	known := map[string]bool{}
	for _, e := range h.First {
		known[e.maker()] = true
	}
	for i := range h.Changes {
		c := &h.Changes[i]
		if known[c.Who] {
			say("two changes are called %s", c.Who)
		}
		known[c.Who] = true
		c.check(entries, made[c.Who], say)
	}
	for _, v := range sortedKeys(entries) {
		if e := entries[v]; !known[e.maker()] && !e.tidied() {
			say("nobody made %s", e.content())
		}
	}
	h.checkSights(entries, say)
	return append(wrong, h.linearize(entries, made, limit)...)
}

// entries are all versions that somebody saw; each is one and the same to all.
func (h *History) entries(say func(string, ...any)) map[uint64]Entry {
	all := map[uint64]Entry{}
	told := map[uint64]bool{}
	for _, look := range append([]Look{{Entries: h.First}}, h.Looks...) {
		for _, e := range look.Entries {
			other, seen := all[e.Version]
			if seen && other.content() != e.content() && !told[e.Version] {
				told[e.Version] = true
				say("one version is two: %s, and %s", other.content(), e.content())
			}
			if !seen {
				all[e.Version] = e
			}
		}
	}
	return all
}

// check holds a change's answer against what the store has of it.
func (c *Change) check(entries map[uint64]Entry, made []uint64, say func(string, ...any)) {
	switch c.Outcome {
	case Refused:
		if len(made) > 0 {
			say("%s (%s): the answer was that nothing was changed, and it made versions %v", c.Who, c.What, made)
		}
	case Done:
		if claimed := sortedKeys(c.Made); !slices.Equal(claimed, made) {
			say("%s (%s): by its answer it made versions %v, by the history %v", c.Who, c.What, claimed, made)
			return
		}
		for _, v := range made {
			if e := entries[v]; !slices.Equal(e.Changes, c.Made[v]) {
				say("%s (%s): its version %d changes %q, by its answer %q", c.Who, c.What, v, e.Changes, c.Made[v])
			}
		}
	}
}

// checkSights: a daemon's versions ascend, each is the store's of this number, and none
// is older than what was acknowledged with this daemon before.
func (h *History) checkSights(entries map[uint64]Entry, say func(string, ...any)) {
	last := map[string]Sight{}
	for _, s := range h.Sights {
		if before := last[s.Daemon]; s.Version < before.Version {
			say("%s went by version %d at %.1f s, and by %d at %.1f s", s.Daemon, before.Version, before.Return.Seconds(), s.Version, s.Return.Seconds())
		}
		last[s.Daemon] = s
		for i := range h.Changes {
			c := &h.Changes[i]
			if c.Outcome == Done && c.Return <= s.Call && s.Version < c.To && !slices.Contains(c.Without, s.Daemon) {
				say("%s (%s): version %d was acknowledged at %.1f s, and %s goes by %d at %.1f s", c.Who, c.What, c.To, c.Return.Seconds(), s.Daemon, s.Version, s.Call.Seconds())
				break
			}
		}
		if e, ok := entries[s.Version]; !ok || e.Digest != s.Digest {
			say("%s went by version %d with digest %s at %.1f s, and the store has %q", s.Daemon, s.Version, s.Digest, s.Return.Seconds(), e.Digest)
		}
	}
}

func sortedKeys[V any](m map[uint64]V) (keys []uint64) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
