package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/store/storetest"
)

// alone are the options of a store of one member, on sockets.
func alone(t *testing.T) Options {
	dir, err := os.MkdirTemp("", "store") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Options{
		Name: "one", Dir: filepath.Join(dir, "data"),
		Client: []string{"unix://" + dir + "/client"}, Peer: []string{"unix://" + dir + "/peer"},
	}
}

// three are the options of a store of three on loopback.
func three(t *testing.T, scheme string, files TLS) []Options {
	var all []Options
	initial := map[string]string{}
	for i := range 3 {
		o := Options{Name: fmt.Sprint("m", i), Dir: t.TempDir(), Initial: initial, TLS: files,
			Client: []string{scheme + free(t)}, Peer: []string{scheme + free(t)}}
		initial[o.Name] = o.Peer[0]
		all = append(all, o)
	}
	for i := range all {
		for j, o := range all {
			if i != j {
				all[i].Others = append(all[i].Others, o.Client[0])
			}
		}
	}
	return all
}

var given sync.Map

// free is an address that nobody listens on, nor was given before.
func free(t *testing.T) string {
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, before := given.LoadOrStore(l.Addr().String(), true); !before {
			return l.Addr().String()
		}
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	t.Cleanup(cancel)
	return ctx
}

// started are members that run; they are stopped after the test.
func started(t *testing.T, options ...Options) []*Server {
	t.Helper()
	servers := make([]*Server, len(options))
	errs := make([]error, len(options))
	var starting sync.WaitGroup
	for i, o := range options {
		starting.Go(func() { servers[i], errs[i] = Start(within(t), o) })
	}
	starting.Wait()
	t.Cleanup(func() {
		var closing sync.WaitGroup
		for _, s := range servers {
			if s != nil {
				closing.Go(s.Close)
			}
		}
		closing.Wait()
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return servers
}

func opened(t *testing.T, endpoints ...string) store.Store {
	t.Helper()
	s, err := store.Open(store.Options{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func put(t *testing.T, s store.Store, key, value string) {
	t.Helper()
	if _, err := s.Commit(within(t), nil, store.Op{Key: key, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

func has(t *testing.T, s store.Store, want string) {
	t.Helper()
	entries, _, err := s.Read(within(t), "")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprintf("%s=%s", e.Key, e.Value))
	}
	if got := strings.Join(got, " "); got != want {
		t.Fatalf("there is %s, not %s", got, want)
	}
}

// TestThree is the suite, over TLS.
func TestThree(t *testing.T) {
	t.Parallel()
	files, clients := certificates(t)
	var endpoints []string
	for _, s := range started(t, three(t, "https://", files)...) {
		endpoints = append(endpoints, s.Endpoints()...)
	}
	storetest.Run(t, storetest.Remote(endpoints, clients))
	// Who has no certificate is not let in, and told why.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	stranger, err := store.Open(store.Options{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	_, _, err = stranger.Read(ctx, "")
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Fatal(err)
	}
}

// TestMajority: one of three may fail; without two, nobody is told anything.
func TestMajority(t *testing.T) {
	t.Parallel()
	options := three(t, "http://", TLS{})
	servers := started(t, options...)
	s := opened(t, servers[0].Endpoints()[0], servers[1].Endpoints()[0], servers[2].Endpoints()[0])
	put(t, s, "a", "1")
	_, rev, err := s.Read(within(t), "")
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 10)
	go func() {
		for batch, err := range s.Watch(t.Context(), "", rev) {
			events <- fmt.Sprintf("%s=%s %v", batch[0].Key, batch[0].Value, err)
		}
	}()
	sees := func(want string) {
		t.Helper()
		select {
		case got := <-events:
			if got != want {
				t.Fatalf("the watch gives %s, not %s", got, want)
			}
		case <-time.After(storetest.Patience):
			t.Fatalf("the watch never gives %s", want)
		}
	}

	servers[0].Close()
	<-servers[0].Done()
	eventually(t, func() error {
		_, err := s.Commit(within(t), nil, store.Op{Key: "b", Value: []byte("2")})
		return err
	})
	sees("b=2 <nil>")
	has(t, s, "a=1 b=2")

	servers[1].Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := s.Read(ctx, ""); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("one of three: %v", err)
	}
	if _, err := s.Commit(ctx, nil, store.Op{Key: "c"}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("one of three: %v", err)
	}
	if _, err := s.Commit(ctx, []store.If{{Key: "none"}}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("one of three: %v", err)
	}

	started(t, options[0], options[1])
	eventually(t, func() error {
		_, err := s.Commit(within(t), nil, store.Op{Key: "d", Value: []byte("4")})
		return err
	})
	has(t, s, "a=1 b=2 d=4")
	sees("d=4 <nil>")
}

// eventually do is done, while the members choose a leader.
func eventually(t *testing.T, do func() error) {
	t.Helper()
	until := time.Now().Add(storetest.Patience)
	for {
		err := do()
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

func TestRestart(t *testing.T) {
	t.Parallel()
	o := alone(t)
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	server := started(t, o)[0]
	t.Logf("ready after %v", time.Since(began))
	if fi, err := os.Stat(o.Dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Fatal(fi.Mode(), err)
	}
	if _, err := Start(within(t), o); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("two run in %s: %v", o.Dir, err)
	}
	s := opened(t, server.Endpoints()...)
	put(t, s, "a", "1")
	server.Close()
	server = started(t, o)[0]
	has(t, s, "a=1")
	put(t, s, "b", "2")
	// With other members, it is another store's folder.
	server.Close()
	moved := o
	moved.Peer = []string{o.Peer[0] + "2"}
	if _, err := Start(within(t), moved); err == nil || !strings.Contains(err.Error(), o.Dir+" is of another store") {
		t.Fatal(err)
	}
	started(t, o)
	has(t, s, "a=1 b=2")
}

func TestFull(t *testing.T) {
	t.Parallel()
	o := alone(t)
	o.QuotaBytes = 2 << 20
	server := started(t, o)[0]
	s := opened(t, server.Endpoints()...)
	put(t, s, "a", "1")
	fill := store.Op{Key: "fill", Value: make([]byte, store.MaxValue/4)}
	var err error
	for n := 0; err == nil && n < 100; n++ {
		_, err = s.Commit(within(t), nil, fill)
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatal(err)
	}
	if entries, _, err := s.Read(within(t), "a"); err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if _, err := s.Commit(within(t), nil, store.Op{Key: "fill", Delete: true}); err != nil {
		t.Fatal(err)
	}
	// Its room is free behind a start at the latest (TestMakesRoom: before that).
	server.Close()
	server = started(t, o)[0]
	put(t, s, "b", "2")
	has(t, s, "a=1 b=2")
	if b := server.Bytes(); b > 1<<20 || len(server.Alarms()) > 0 || server.Quota() != 2<<20 {
		t.Errorf("%d bytes, alarms %q", b, server.Alarms())
	}
	// What is not deleted stays: a start makes no room of that, more room does.
	fills := 0
	full := func() {
		t.Helper()
		for err = nil; err == nil && fills < 100; fills++ {
			_, err = s.Commit(within(t), nil, store.Op{Key: fmt.Sprint("fill", fills), Value: make([]byte, store.MaxValue/4)})
		}
		if !errors.Is(err, store.ErrFull) {
			t.Errorf("full of what is wanted: %v", err)
		}
	}
	full()
	server.Close()
	server = started(t, o)[0]
	full()
	server.Close()
	o.QuotaBytes = 0
	started(t, o)
	put(t, s, "c", "3")
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	o := three(t, "http://", TLS{})[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := Start(ctx, o); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), o.Initial["m2"]) {
		t.Fatal(err)
	}
}

func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"needs a name":                  func(o *Options) { o.Name = "a=b" },
		"client addresses: there is":    func(o *Options) { o.Client = nil },
		"peer addresses: there is":      func(o *Options) { o.Peer = nil },
		"an IP address and a port":      func(o *Options) { o.Client = []string{"http://0.0.0.0:2379"} },
		"a socket is unix:///path":      func(o *Options) { o.Client = []string{"unix://path"} },
		"begins with":                   func(o *Options) { o.Client = []string{"127.0.0.1:2379"} },
		"needs a certificate":           func(o *Options) { o.Client = []string{"https://127.0.0.1:2379"} },
		"none of its peer addresses":    func(o *Options) { o.Initial = map[string]string{"one": "http://127.0.0.1:1"} },
		"a store member needs a folder": func(o *Options) { o.Dir = "" },
	} {
		o := Options{Name: "one", Dir: t.TempDir(), Client: []string{"unix:///nowhere/c"}, Peer: []string{"unix:///nowhere/p"}}
		change(&o)
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not: %s", err, want)
		}
	}
}

// TestMadeAnew: a watch that is open while the store is replaced by an empty one, or
// an older copy, ends: what was to come next is not what it waits for.
func TestMadeAnew(t *testing.T) {
	t.Parallel()
	o := alone(t)
	server := started(t, o)[0]
	s := opened(t, server.Endpoints()...)
	for n := range 20 {
		put(t, s, fmt.Sprint("a", n), "1")
	}
	_, rev, err := s.Read(within(t), "")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for _, err := range s.Watch(t.Context(), "", rev) {
			if err != nil {
				ended <- err
			}
		}
	}()
	server.Close()
	<-server.Done()
	if err := os.RemoveAll(o.Dir); err != nil {
		t.Fatal(err)
	}
	started(t, o)
	select {
	case err := <-ended:
		if !errors.Is(err, store.ErrCompacted) {
			t.Error(err)
		}
	case <-time.After(storetest.Patience):
		t.Error("it goes on waiting")
	}
}
