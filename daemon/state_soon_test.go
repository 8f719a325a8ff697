package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is said of a file, at once or for later, what was said last is what is there
// in the end.
func TestKeepSoon(t *testing.T) {
	was := soonRest
	defer func() { soonRest = was }()
	rapid.Check(t, func(r *rapid.T) {
		soonRest = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(r, "rest")
		base := t.TempDir()
		s, err := OpenState(base, "lb1", UnsavedForce, slog.New(slog.DiscardHandler))
		if err != nil {
			r.Fatal(err)
		}
		want := map[string]string{}
		held := make(chan struct{}) // the first is encoded while the others are said
		s.KeepSoon("c", func() []byte { <-held; return []byte("held") })
		want["c"] = "held"
		for range rapid.IntRange(1, 12).Draw(r, "writes") {
			name, text := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "file"), rapid.StringMatching("[a-z]{1,4}").Draw(r, "text")
			want[name] = text
			switch rapid.IntRange(0, 4).Draw(r, "how") {
			case 0:
				err = s.Keep(name, []byte(text))
			case 1:
				err = s.Write(name, []byte(text))
			case 2:
				err, want[name] = s.Remove(name), ""
			case 3:
				s.KeepSoon(name, func() []byte { return nil })
				want[name] = ""
			default:
				s.KeepSoon(name, func() []byte { return []byte(text) })
			}
			if err != nil {
				r.Fatal(err)
			}
		}
		close(held)
		if err := s.Close(); err != nil {
			r.Fatal(err)
		}
		for name, text := range want {
			if is, err := ReadState(base, "lb1", name); err != nil || strings.TrimSpace(string(is)) != text {
				r.Fatalf("%s: %q instead of %q, %v", name, is, text, err)
			}
		}
	})
}
