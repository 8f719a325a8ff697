package ctl

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
)

// TestPlanAsksNobodyElse: the text of somebody who may only look sends the controller
// nowhere; an administrator's is asked for.
func TestPlanAsksNobodyElse(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	s.begin()
	place := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", place)
	if err != nil {
		t.Skip(err) // the folder's name is too long for a socket
	}
	defer l.Close()
	var calls atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			conn.Close()
		}
	}()
	text := strings.Replace(s.file("[s1]"), "servers: [{", `servers: [{name: s8, address: 10.0.0.28, api: "unix:`+place+`"}, {`, 1)
	for _, who := range []string{"vic", "otto", "lb1", "ada"} {
		a := s.call(who, "Plan", with(text, ""))
		if a.status != http.StatusOK {
			t.Errorf("%s: %d %s", who, a.status, a.body)
		}
		if asked := calls.Load() > 0; asked != (who == "ada") {
			t.Errorf("%s had the controller call %d times: %s", who, calls.Load(), a.body)
		}
	}
}

// TestTurn: one plan, or change, waits for the other no longer than its time.
func TestTurn(t *testing.T) {
	t.Parallel()
	room := make(chan struct{}, 1)
	done, err := turn(t.Context(), room, "plan")
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turn(over, room, "plan"); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("two at a time: %v", err)
	}
	done()
	if _, err := turn(t.Context(), room, "plan"); err != nil {
		t.Error(err)
	}
}
