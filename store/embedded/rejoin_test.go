package embedded

import (
	"bytes"
	"fmt"
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
		name := filepath.Join(dir, "member", "snap", "db")
		if is, err := os.Stat(name); err != nil || is.Size() <= 9000 {
			return fmt.Errorf("nothing of %s can be cut: %w", name, err)
		}
		return os.Truncate(name, 9000)
	},
	"a value is another one": func(dir string) error {
		return another(filepath.Join(dir, "member", "snap", "db"))
	},
	"its log is another one": func(dir string) error {
		logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
		if err != nil {
			return err
		}
		return another(logs[0])
	},
}

// another puts another value into a file, which has it.
func another(name string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	now := bytes.ReplaceAll(data, []byte("one of three"), []byte("one of seven"))
	if bytes.Equal(now, data) {
		return fmt.Errorf("%s does not have the value", name)
	}
	return os.WriteFile(name, now, 0o600)
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
			was := servers[2].etcd.Server.MemberID()
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
			if again.etcd.Server.MemberID() == was {
				t.Error("it goes on with what was spoiled: it has the number that it had")
			}
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
	t.Parallel()
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

// TestAnotherStore: where another member is to be, a store answers that has no member of
// these, as a single balancer's, which has not been restarted yet. It is not joined, and
// stays what it is; the others begin, and the last comes when the place is free.
func TestAnotherStore(t *testing.T) {
	t.Parallel()
	options := three(t, "http://", TLS{})
	old := alone(t)
	old.Client = options[0].Client
	was := started(t, old)[0]
	put(t, opened(t, old.Client[0]), "a", "of the old")
	two := started(t, options[1:]...)
	put(t, opened(t, options[1].Client[0], options[2].Client[0]), "a", "of the new")
	if n := len(was.etcd.Server.Cluster().Members()); n != 1 {
		t.Errorf("the other store has %d members", n)
	}
	has(t, opened(t, old.Client[0]), "a=of the old")
	was.Close()
	started(t, options[0])
	two[0].Close()
	put(t, opened(t, options[0].Client[0], options[2].Client[0]), "b", "by two")
	has(t, opened(t, options[0].Client[0]), "a=of the new b=by two")
}
