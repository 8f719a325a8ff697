package yamlfile

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// FuzzDecode: whatever a file holds, the answer comes soon, and every problem
// is one line with a place in the file and a remedy.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{good, "digits: [1]\n", "items:\n- &a {name: x}\n- {<<: *a, left: no}\n", "a: 1\n---\nb: 2\n", "names: {? [a] : b}\n",
		"items:\n- &a {<<: *a}\n", "%TAG ! tag:a\n---\nx\n", "\xff\xfea", "digits: !!binary aGk=\n", "# nothing\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, into := range []any{&file{}, &group{}} {
			began := cpuTime()
			d := &Document{File: "f", Empty: "write something"}
			err := d.Decode(data, into)
			if took := cpuTime() - began; took > 10*time.Second {
				t.Errorf("%d bytes took %v", len(data), took)
			}
			var problems Problems
			if err != nil && !errors.As(err, &problems) {
				t.Fatalf("%T %v", err, err)
			}
			for _, p := range append(problems, d.Problems...) {
				if p.Remedy == "" || p.Wrong == "" || p.Line > 1+len(data) || strings.ContainsAny(p.String(), "\n\x1b") {
					t.Errorf("%+v", p)
				}
				if p.Line == 0 && len(bytes.TrimSpace(data)) > 0 && p.Wrong != "empty" {
					t.Errorf("no line: %+v", p)
				}
			}
		}
	})
}
