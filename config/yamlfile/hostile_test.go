package yamlfile

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// group is a type that can hold itself only by an alias.
type group struct {
	Name  string  `yaml:"name"`
	Items []group `yaml:"items"`
	Words []word  `yaml:"words"`
	// Names has paths made of what the file holds.
	Names map[string]string `yaml:"names"`
}

// word copies its text, as config.Member does.
type word string

func (w *word) UnmarshalText(text []byte) error {
	*w = word(text)
	return nil
}

// TestHostileFiles: whatever an author of a file thinks of, the answer comes at
// once, takes memory by the file's size, and names a line and a remedy. One of
// these took 17 s and 5.5 GB at 120 KB before, another 105 s.
func TestHostileFiles(t *testing.T) {
	counted := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	wide := func(text string) string { // UTF-16
		return "\xff\xfe" + strings.Join(strings.Split(text, ""), "\x00") + "\x00"
	}
	laughs := "name: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		laughs += fmt.Sprintf("k%d: &a%d [%s]\n", i, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	const n = 200_000
	for name, c := range map[string]struct{ text, want string }{
		"brackets":           {strings.Repeat("[", n) + strings.Repeat("]", n), "not YAML: exceeded max depth"},
		"open brackets":      {strings.Repeat("[", n), "not YAML"},
		"brackets inside":    {"items: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "items[0]: must be a mapping"},
		"braces":             {strings.Repeat("{items: [", n/9) + strings.Repeat("]}", n/9), "not YAML: exceeded max depth"},
		"dashes":             {strings.Repeat("- ", n), "not YAML: exceeded max depth"},
		"questions":          {strings.Repeat("? ", n), "not YAML: exceeded max depth"},
		"keys":               {counted(n, "k%d: v\n"), "unknown key"},
		"long keys":          {counted(100, strings.Repeat("k", 20_000)+"%d: v\n"), "not YAML: mapping values are not allowed"},
		"keys of a thousand": {counted(2000, "? "+strings.Repeat("k", 1000)+"%d\n: v\n"), "unknown key"},
		"no values":          {"items:\n" + strings.Repeat("-\n", n), "an empty item"},
		"quotes":             {strings.Repeat(`"" `, n), "not YAML"},
		"anchors":            {strings.Repeat("&a ", n), "not YAML"},
		"tags":               {strings.Repeat("!a ", n), "not YAML"},
		"documents":          {strings.Repeat("--- a\n", n), "a second YAML document"},
		"aliases":            {"items:\n- &a {name: x, items: [" + strings.Repeat("{}, ", 1000) + "]}\n" + strings.Repeat("- *a\n", n/10), "with aliases put in, the file has more than 524288 values"},
		"aliases of lists":   {laughs, "unknown key"},
		"doubling":           {"items:\n- &a0 {name: x}\n" + counted(30, "- &b%[1]d {items: [*a0, *a0]}\n"), ""},
		"in itself":          {"items:\n- &a {items: [*a, *a]}\n", "nested deeper than 64 levels"},
		"merged in itself":   {"items:\n- &a {<<: *a}\n", "nested deeper than 64 levels"},
		"merges":             {"items:\n- &a {" + counted(1000, "k%d: x, ") + "}\n" + strings.Repeat("- {<<: *a, name: b}\n", n/100), "unknown key"},
		"a long text":        {"name: &a " + strings.Repeat("a", n) + "\nwords: [" + strings.Repeat("*a, ", n/10) + "]\n", "f:2:673: with aliases put in, the file has more than 32 MiB of text"},
		"a long name":        {"items:\n- &a {names: {? " + strings.Repeat("a", n) + ": b}}\n" + strings.Repeat("- *a\n", n/10), "more than 32 MiB of text"},
		"a long value":       {"items:\n- &a {words: [" + strings.Repeat("a", n) + "]}\n" + strings.Repeat("- *a\n", n/10), "more than 32 MiB of text"},
		"tagged merges":      {"x: &m {" + strings.Repeat("name: , ", n/10) + "}\nname: a\n" + counted(n/10, "!!merge k%d: *m\n"), "f:4:1: k1: a second merge key, after line 3; keep one <<"},
		"merges of its own":  {"x: &m {" + strings.Repeat("name: , ", n/10) + "}\nitems:\n" + strings.Repeat("- {name: a, <<: *m}\n", n/10), "with aliases put in, the file has more than 524288 values"},
		"tag directives":     {counted(n/4, "%%TAG !%d! tag:a\n") + "---\nname: x\n", "f:1: a %TAG directive; remove it"},
		"later directives":   {"\ufeff---\n...\r" + counted(n/4, "%%TAG !%d! tag:a\r") + "---\rname: x\r", "f:2: a %TAG directive"},
		"wide directives":    {wide(counted(n/4, "%%TAG !%d! tag:a\n") + "---\nname: x\n"), "f:1: not UTF-8; save it as UTF-8"},
		"no directive":       {"name: 100%TAG # %TAG\n", ""},
		"no anchor":          {"name: x\nitems: [*a]\n", "f:2: not YAML: unknown anchor 'a' referenced; define it above with &a"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := cpuTime()
		d := &Document{File: "f"}
		err := d.Decode([]byte(c.text), &group{})
		if err == nil && len(d.Problems) > 0 {
			err = d.Problems
		}
		took := cpuTime() - began
		runtime.ReadMemStats(&after)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.HasPrefix(err.Error(), "f:") || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%s: %.300v, want %s, a line and a remedy", name, err, c.want)
		}
		if took > 5*time.Second { // of a processor; what grows with the square takes minutes
			t.Errorf("%s: %d bytes took %v", name, len(c.text), took)
		}
		if spent := (after.TotalAlloc - before.TotalAlloc) >> 20; spent > 256 {
			t.Errorf("%s: %d bytes took %d MB", name, len(c.text), spent)
		}
	}
}

// Names of 100 KB that are near to each other took 10 s for each slip.
func TestNearestOfLongNames(t *testing.T) {
	long := strings.Repeat("a", 100_000)
	for _, c := range []struct{ word, known, want string }{{"nmae", "name", "name"}, {long + "b", long + "c", ""}} {
		began := cpuTime()
		if got := Nearest(c.word, []string{c.known}); got != c.want {
			t.Errorf("near %.10s: %.10s, want %q", c.word, got, c.want)
		}
		if took := cpuTime() - began; took > time.Second {
			t.Errorf("took %v", took)
		}
	}
}

// cpuTime is what this process took of processors so far: other than the time on
// the wall it is the same on a busy machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
