package chaos

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// The history as porcupine has it: a log, to whose end versions are appended if it is
// the version before, and which is read. Two appends of one number, a read without what
// was acknowledged before it, or with what nobody had begun by then, fit no order.

// log is the model's state: what each version is, from the first. It is never changed.
type log struct {
	versions []string
	sum      uint64
}

var seed = maphash.MakeSeed()

func (l log) with(version string) log {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = fmt.Fprint(&h, l.sum, version)
	return log{append(l.versions[:len(l.versions):len(l.versions)], version), h.Sum64()}
}

func logOf(entries []Entry) (l log) {
	for _, e := range entries {
		l = l.with(e.content())
	}
	return l
}

// What is done to the log.
type (
	// appends makes it the version: it needs the one before.
	appends struct {
		version uint64
		content string
		who     string
	}
	// finds is a change that had nothing to do, as the version was the newest.
	finds struct {
		version uint64
		who     string
	}
	// reads is a look at all.
	reads struct{ log log }
	// goesBy is a daemon's version.
	goesBy struct {
		version        uint64
		digest, daemon string
	}
)

func step(state, input, _ any) (bool, any) {
	l := state.(log)
	switch in := input.(type) {
	case appends:
		if in.version != uint64(len(l.versions))+1 {
			return false, l
		}
		return true, l.with(in.content)
	case finds:
		return in.version == uint64(len(l.versions)), l
	case reads:
		return equal(in.log, l), l
	case goesBy:
		return in.version <= uint64(len(l.versions)), l
	}
	panic("the log knows no such operation")
}

func equal(a, b any) bool {
	return a.(log).sum == b.(log).sum && slices.Equal(a.(log).versions, b.(log).versions)
}

// linearize says why there is no order in which all of it could have happened one after
// the other, each between its call and its return.
func (h *History) linearize(entries map[uint64]Entry, made map[string][]uint64, limit time.Duration) []string {
	model := porcupine.Model{
		Init:  func() any { return logOf(h.First) },
		Step:  step,
		Equal: equal,
		Hash:  func(state any) uint64 { return state.(log).sum },
	}
	all := h.operations(entries, made)
	result, info := porcupine.CheckOperationsVerbose(model, all, limit)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []string{fmt.Sprintf("whether the history of %d operations is linearizable was not decided in %v", len(all), limit)}
	}
	longest := []int{}
	for _, partial := range info.PartialLinearizations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	text := "the history is not linearizable"
	var first *porcupine.Operation // of those that fit nowhere
	for i := range all {
		if o := &all[i]; !slices.Contains(longest, i) && (first == nil || o.Return < first.Return) {
			first = o
		}
	}
	if first != nil {
		text += fmt.Sprintf(": %s, from %.3f s to %.3f s, fits nowhere", describe(first.Input), time.Duration(first.Call).Seconds(), time.Duration(first.Return).Seconds())
	}
	return []string{text}
}

// never is the return of what may be made at any later time.
const never = math.MaxInt64

// operations are porcupine's.
func (h *History) operations(entries map[uint64]Entry, made map[string][]uint64) (all []porcupine.Operation) {
	add := func(call, end time.Duration, input any) {
		all = append(all, porcupine.Operation{ClientId: len(all), Input: input, Call: int64(call), Return: int64(end)})
	}
	for i := range h.Changes {
		c := &h.Changes[i]
		end, versions := c.Return, made[c.Who]
		if c.Outcome == Done {
			versions = sortedKeys(c.Made)
		} else {
			end = never
		}
		for _, v := range versions {
			e := entries[v]
			content := e.content()
			if e.maker() != c.Who {
				content = fmt.Sprintf("version %d, which %s made and nobody has", v, c.Who)
			}
			add(c.Call, end, appends{v, content, c.Who})
		}
		if c.Outcome == Done && len(versions) == 0 {
			add(c.Call, c.Return, finds{c.To, c.Who})
		}
	}
	for _, v := range sortedKeys(entries) {
		if e := entries[v]; e.tidied() && v > uint64(len(h.First)) {
			add(0, never, appends{v, e.content(), e.Who})
		}
	}
	for _, l := range h.Looks {
		add(l.Call, l.Return, reads{logOf(l.Entries)})
	}
	last := map[string]uint64{}
	for _, s := range h.Sights {
		if last[s.Daemon] != s.Version { // what it said before, it may well say again
			last[s.Daemon] = s.Version
			add(s.Call, s.Return, goesBy{s.Version, s.Digest, s.Daemon})
		}
	}
	return all
}

func describe(input any) string {
	switch in := input.(type) {
	case appends:
		return fmt.Sprintf("that %s made %s", in.who, in.content)
	case finds:
		return fmt.Sprintf("that %s found version %d the newest", in.who, in.version)
	case reads:
		return fmt.Sprintf("a look at %d versions", len(in.log.versions))
	case goesBy:
		return fmt.Sprintf("that %s goes by version %d", in.daemon, in.version)
	}
	return fmt.Sprintf("%T", input)
}
