package daemon

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/daemon/kept"
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
			if is, err := kept.Read(base, "lb1", name); err != nil || strings.TrimSpace(string(is)) != text {
				r.Fatalf("%s: %q instead of %q, %v", name, is, text, err)
			}
		}
	})
}

// What is said again and again before it has rested is written all the same.
func TestKeepSoonAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := t.TempDir()
		s, err := OpenState(base, "lb1", UnsavedForce, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		begun, writes := time.Now(), 0
		at := func(name string) (age time.Duration) { // of what is on disk
			data, err := kept.Read(base, "lb1", name)
			if err != nil || len(data) == 0 {
				return time.Since(begun)
			}
			said, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Since(begun) - time.Duration(said)
		}
		for range 1000 { // of a second each
			time.Sleep(time.Second)
			said := time.Since(begun)
			for _, name := range []string{"a", "b"} {
				s.KeepSoon(name, func() []byte { writes++; return fmt.Append(nil, int64(said)) })
			}
			synctest.Wait()
			for _, name := range []string{"a", "b"} {
				if age := at(name); age > soonAtMost+soonRest+2*time.Second {
					t.Fatalf("%s: %v after the start what is on disk is %v old", name, time.Since(begun), age)
				}
			}
		}
		if most := 2 * 2 * int(time.Since(begun)/soonAtMost+1); writes > most { // for itself, and as the other is
			t.Errorf("written %d times in %v, must be at most %d", writes, time.Since(begun), most)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
