package steered

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/lab/netspace"
)

// A server whose agent restarts while a link is cut stays on the path that is left,
// before, meanwhile and after; and it is said that nobody answers.
func TestAgentRestarts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	o := Options{Servers: 1, Program: built.Fairlead(t)}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	s, err := build(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.fabric.Down(); err != nil {
			t.Error(err)
		}
	}()
	status := &fairleadv1.GetStatusResponse{}
	silent := func() bool { return strings.Contains(strings.Join(status.Warnings, ""), "is answered over any path") }
	left := func() bool { return parts(status) == "[0 64][0 64]" }
	wait := func(what string, met func() bool) {
		t.Helper()
		if !netspace.WaitFor(readyWait, func() bool {
			if r, err := s.balancer.GetStatus(t.Context(), connect.NewRequest(&fairleadv1.GetStatusRequest{})); err == nil {
				status = r.Msg
			}
			return met()
		}) {
			t.Fatalf("%s: never; %s, %q", what, parts(status), status.Warnings)
		}
	}
	if err := s.fabric.Cut(s.link); err != nil {
		t.Fatal(err)
	}
	wait("the cut link is left", left)
	moved := status.Steered[0].Moved + status.Steered[1].Moved
	for range 2 {
		s.daemons["s1"].Stop()
		wait("nobody answers", silent)
		if !left() {
			t.Errorf("without an agent: %s", parts(status))
		}
		if err := s.start("s1", "host"); err != nil {
			t.Fatal(err)
		}
		answered := status.Steered[0].Paths[1].Answered
		wait("probes are answered again", func() bool { return !silent() && status.Steered[0].Paths[1].Answered > answered+5 })
		if now := status.Steered[0].Moved + status.Steered[1].Moved; !left() || now != moved {
			t.Errorf("after a restart: %s, %d parts moved, %d before", parts(status), now, moved)
		}
	}
}

// parts are those of each row's paths.
func parts(status *fairleadv1.GetStatusResponse) (text string) {
	for _, row := range status.Steered {
		var list []uint32
		for _, p := range row.Paths {
			list = append(list, p.Parts)
		}
		text += fmt.Sprint(list)
	}
	return text
}
