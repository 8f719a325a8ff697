package embedded

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/store/internal/zaplog"
)

// spoils are what may happen to a member's folder while it is down. Of the first the next
// start is told by nobody; the others it finds, and the start after that mends.
var spoils = map[string]func(dir string) error{
	"it is gone": os.RemoveAll,
	"all in it is gone": func(dir string) error {
		return os.RemoveAll(filepath.Join(dir, "member"))
	},
	"its values are cut": func(dir string) error {
		return os.Truncate(filepath.Join(dir, "member", "snap", "db"), 9000)
	},
	"a value is another one": func(dir string) error {
		name := filepath.Join(dir, "member", "snap", "db")
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(name, bytes.ReplaceAll(data, []byte("one of three"), []byte("one of seven")), 0o600)
	},
	"its log is another one": func(dir string) error {
		logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
		if err != nil {
			return err
		}
		data, err := os.ReadFile(logs[0])
		if err != nil {
			return err
		}
		return os.WriteFile(logs[0], bytes.ReplaceAll(data, []byte("one of three"), []byte("one of seven")), 0o600)
	},
}

// TestRejoin: a member whose folder is damaged or lost is one of three again, with all
// that they know, and another may fail then.
func TestRejoin(t *testing.T) {
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := three(t, "http://", TLS{})
			servers := started(t, options...)
			put(t, opened(t, options[0].Client[0], options[1].Client[0]), "a", "one of three")
			has(t, opened(t, options[2].Client[0]), "a=one of three")
			servers[2].Close()
			put(t, opened(t, options[0].Client[0], options[1].Client[0]), "b", "while it is away")
			if err := spoil(options[2].Dir); err != nil {
				t.Fatal(err)
			}
			again, err := Start(within(t), options[2])
			if err != nil { // its unit starts it again
				t.Log(err)
				again, err = Start(within(t), options[2])
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(again.Close)
			servers[0].Close()
			two := opened(t, options[1].Client[0], options[2].Client[0])
			put(t, two, "c", "by two")
			has(t, two, "a=one of three b=while it is away c=by two")
			// It is one like the others from now on.
			again.Close()
			if again, err = Start(within(t), options[2]); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(again.Close)
			put(t, opened(t, options[2].Client[0]), "d", "by two")
		})
	}
}

// TestDamagedAlone: while no majority of the others answers, a damaged folder stays where
// it is: it may be all that there is.
func TestDamagedAlone(t *testing.T) {
	options := three(t, "http://", TLS{})
	servers := started(t, options...)
	put(t, opened(t, options[0].Client[0]), "a", "one of three")
	servers[2].Close()
	servers[1].Close()
	if err := os.Truncate(filepath.Join(options[2].Dir, "member", "snap", "db"), 9000); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Start(within(t), options[2]); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(options[2].Dir, asideName)); err == nil {
		t.Error("it was set aside")
	}
	// One of the others is back.
	started(t, options[1])
	started(t, options[2])
	has(t, opened(t, options[2].Client[0]), "a=one of three")
}

// TestLostLog: what raft says when its log lacks what it acknowledged marks the folder; a
// full disk does not.
func TestLostLog(t *testing.T) {
	for message, want := range map[string]bool{
		"tocommit(9) is out of range [lastIndex(7)]. " + lostLog: true,
		"failed to create WAL segment: no space left on device":  false,
	} {
		s := &Server{o: Options{Dir: t.TempDir(), Others: []string{"http://127.0.0.1:1"}}}
		func() {
			defer func() { _ = recover() }()
			s.marking(zaplog.New(nil)).Panic(message)
		}()
		if _, err := os.Stat(filepath.Join(s.o.Dir, markName)); (err == nil) != want {
			t.Errorf("%s: %v", message, err)
		}
	}
	for text, want := range map[string]bool{"page 7: invalid": true, "write wal: no space left on device": false} {
		if err := damaged("folder", text); isDamage(err) != want {
			t.Errorf("%s: damage %t", text, !want)
		}
	}
}
