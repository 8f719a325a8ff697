package lab

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

// TestRounds: connections that are silent ask when they are told to, and a
// round is over when all have, or broke.
func TestRounds(t *testing.T) {
	const n = 20
	listener := listen(t)
	var asked, breaks atomic.Int64
	serve := handler("server1")
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if breaks.Add(-1) == 0 {
			panic(http.ErrAbortHandler)
		}
		serve.ServeHTTP(w, r)
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	commands, input := io.Pipe()
	output, reports := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- RunLoad(t.Context(), commands, reports) }()
	t.Cleanup(func() { input.Close() })
	tell, read := json.NewEncoder(input), json.NewDecoder(output)
	until := func(what string, is func(LoadReport) bool) LoadReport {
		t.Helper()
		for range 60 { // half seconds
			var r LoadReport
			if err := read.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if is(r) {
				return r
			}
		}
		t.Fatalf("%s: not in half a minute", what)
		return LoadReport{}
	}
	send := func(v any) {
		t.Helper()
		if err := tell.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	send(LoadPlan{Targets: []Target{{"web", listener.Addr().String()}}, Steady: n, Settle: 0.1, Pause: 600, Seconds: 600, Hold: true})
	until("answered", func(r LoadReport) bool { return r.Tallies["web"].Answered == n && r.Round == 0 })
	if got := asked.Load(); got != n {
		t.Fatalf("%d requests while connections opened, want %d", got, n)
	}
	send(LoadNotice{Ask: true})
	until("first round", func(r LoadReport) bool { return r.Round == 1 })
	if got := asked.Load(); got != 2*n {
		t.Errorf("%d requests after a round, want %d", got, 2*n)
	}
	breaks.Store(3)
	send(LoadNotice{Ask: true})
	r := until("second round", func(r LoadReport) bool { return r.Round == 2 })
	if tally := r.Tallies["web"]; tally.Broken != 1 || tally.Alive != n-1 {
		t.Errorf("%+v, want one broken", tally)
	}
	send(LoadNotice{Over: true})
	r = until("end", func(r LoadReport) bool { return r.Done })
	if tally := r.Tallies["web"]; tally.Completed != n-1 {
		t.Errorf("%+v at the end", tally)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
