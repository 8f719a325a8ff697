package daemon

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/config"
)

// TestKnownConnections: whoever has a certificate and opens connections without an end
// keeps no more than the door's, and loses his own: another's, idle for longer than all
// of them, stays, and who comes meanwhile is heard.
func TestKnownConnections(t *testing.T) {
	dir := t.TempDir()
	authority, err := certs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := func(s certs.Subject) config.TLS {
		t.Helper()
		if _, err := authority.Issue(s); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, s.Name)
		return config.TLS{CA: filepath.Join(at, "ca.pem"), Cert: filepath.Join(at, "cert.pem"), Key: filepath.Join(at, "key.pem")}
	}
	of := &Daemon{Log: slog.New(slog.DiscardHandler), refused: newRefused(), TLS: files(certs.Subject{Name: "lb1", Endpoints: []string{"https://127.0.0.1:1"}})}
	vic, ada := files(certs.Subject{Name: "vic", Role: access.View}), files(certs.Subject{Name: "ada", Role: access.Administer})
	l, err := of.listen("https://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := doorOf(t, l)
	const most, attack = 20, 100
	d.callers.most = most
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewFairleadHandler(timeOnly{}))
	go func() { ended <- serve(ctx, httpServer(mux, slog.New(slog.DiscardHandler)), l) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	ask := func(who fairleadv1connect.FairleadClient, reused bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
			if i.Reused != reused {
				t.Errorf("connection reused: %v, want %v", i.Reused, reused)
			}
		}})
		if _, err := who.GetTime(ctx, connect.NewRequest(&fairleadv1.GetTimeRequest{})); err != nil {
			t.Errorf("a caller is not heard: %v", err)
		}
	}
	dial := func(files config.TLS) fairleadv1connect.FairleadClient {
		t.Helper()
		c, err := api.Dial("https://"+l.Addr().(*net.TCPAddr).String(), files)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := dial(ada)
	ask(before, false)
	for range attack {
		ask(dial(vic), false)
	}
	ask(before, true)
	ask(dial(ada), false)
	held := func() (n int, by map[string]int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		by = map[string]int{}
		for _, of := range d.callers.by {
			by[of[0].holder[:3]] += len(of)
		}
		return d.callers.n, by
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		n, by := held()
		if n == most && by["ada"] == 2 && by["vic"] == most-2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are kept, %v", n, by)
		}
	}
	// A connection that is in use goes only where none of its holder's is idle.
	d.mu.Lock()
	defer d.mu.Unlock()
	c := callers{most: 2, by: map[string][]*guest{}}
	busy, idle, last := &guest{holder: "a", number: 1}, &guest{holder: "a", number: 2, idle: true}, &guest{holder: "a", number: 3}
	for _, g := range []*guest{busy, idle, last} {
		c.last(g)
	}
	if gone := c.over(); gone != idle {
		t.Errorf("connection %d went", gone.number)
	}
	c.last(&guest{holder: "a", number: 4})
	if gone := c.over(); gone != busy || c.n != 2 {
		t.Errorf("connection %d went, of %d", gone.number, c.n)
	}
}
