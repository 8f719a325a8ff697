package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
)

// cutting is a controller whose streams end in their middle, but for the last.
type cutting struct {
	fairleadv1connect.UnimplementedControlHandler
	streams [][]*fairleadv1.Event
	asked   atomic.Int32
}

func (c *cutting) WatchEvents(ctx context.Context, _ *connect.Request[fairleadv1.WatchEventsRequest], s *connect.ServerStream[fairleadv1.Event]) error {
	n := int(c.asked.Add(1)) - 1
	for _, e := range c.streams[min(n, len(c.streams)-1)] {
		if err := s.Send(e); err != nil {
			return err
		}
	}
	if n < len(c.streams)-1 {
		panic(http.ErrAbortHandler) // as where the process is killed
	}
	<-ctx.Done()
	return nil
}

// TestEventsCut: who follows goes on where a stream was cut, and is not told again what a new
// one begins with.
func TestEventsCut(t *testing.T) {
	dir, err := os.MkdirTemp("", "ev") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	say := func(kind fairleadv1.Event_Kind, version uint64, daemon, text string) *fairleadv1.Event {
		return &fairleadv1.Event{Kind: kind, Version: version, Daemon: daemon, Text: []string{text}}
	}
	const came, went, refused = fairleadv1.Event_KIND_DAEMON_CAME, fairleadv1.Event_KIND_DAEMON_WENT, fairleadv1.Event_KIND_DAEMON_REFUSED
	const warned, leader, force = fairleadv1.Event_KIND_CONTROLLER_WARNED, fairleadv1.Event_KIND_LEADER, fairleadv1.Event_KIND_IN_FORCE
	begins := []*fairleadv1.Event{
		say(came, 1, "s1", "s1 comes"), say(came, 1, "s2", "s2 comes"), say(refused, 2, "s2", "s2 cannot"), say(force, 1, "", "1 in force"),
		say(leader, 0, "c1", "c1 leads"), say(warned, 0, "c1", "c1 warns"),
	}
	c := &cutting{streams: [][]*fairleadv1.Event{
		append(begins, say(refused, 2, "s2", "s2 cannot"), say(went, 0, "s1", "s1 goes")),
		append(begins[1:], say(leader, 0, "c2", "c2 leads")),
		append(begins[1:4], say(leader, 0, "c2", "c2 leads"), say(came, 1, "s1", "s1 comes again"), say(force, 2, "", "2 in force"),
			say(refused, 0, "s2", "s2 can"), say(refused, 3, "s2", "s2 cannot 3"), say(warned, 0, "c1", "c1 warns of more")),
	}}
	l, err := net.Listen("unix", filepath.Join(dir, "c"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewControlHandler(c))
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	defer server.Close()

	out, in := io.Pipe()
	var said strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, newRootCommand(), []string{"events", "--follow", "--api", "unix:" + filepath.Join(dir, "c")}, strings.NewReader(""), in, &said)
		in.Close()
	}()
	want := []string{"s1 comes", "s2 comes", "s2 cannot", "1 in force", "c1 leads", "c1 warns", "s1 goes", "c2 leads",
		"s1 comes again", "2 in force", "s2 can", "s2 cannot 3", "c1 warns of more"}
	lines := bufio.NewReader(out)
	for _, text := range want {
		line, err := lines.ReadString('\n')
		if _, got, _ := strings.Cut(strings.TrimSpace(line), "  "); err != nil || got != text { // behind the time
			t.Fatalf("%q, want %q: %v", line, text, err)
		}
	}
	cancel()
	if status := <-ended; status != 0 {
		t.Errorf("exit status %d: %s", status, said.String())
	}
	if got := said.String(); strings.Count(got, "went away; trying on") != 1 || strings.Contains(got, "protocol error") {
		t.Error(got)
	}
}

// fullDisk takes nothing.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestEventsUnprinted: what cannot be printed is an error, and no controller that went away.
func TestEventsUnprinted(t *testing.T) {
	dir, err := os.MkdirTemp("", "ev") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "c"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	event := &fairleadv1.Event{Kind: fairleadv1.Event_KIND_LEADER, Daemon: "c1", Text: []string{"c1 leads"}}
	mux.Handle(fairleadv1connect.NewControlHandler(&cutting{streams: [][]*fairleadv1.Event{{event}}}))
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	defer server.Close()
	for _, output := range []string{"table", "json"} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var said strings.Builder
		status := cli.Run(ctx, newRootCommand(), []string{"events", "--follow", "-o", output, "--api", "unix:" + filepath.Join(dir, "c")}, strings.NewReader(""), fullDisk{}, &said)
		if status != 1 || ctx.Err() != nil || strings.Contains(said.String(), "went away") {
			t.Errorf("%s: exit status %d: %s", output, status, said.String())
		}
		cancel()
	}
}
