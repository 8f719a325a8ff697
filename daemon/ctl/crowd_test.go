package ctl

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
)

// TestCrowd: callers who keep all streams open that they may, and all calls, keep
// neither calls nor administrators out; each part is bounded, by caller and in all.
func TestCrowd(t *testing.T) {
	t.Parallel()
	begun, let := make(chan struct{}), make(chan struct{})
	h := newCrowd().within(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-let
	}))
	var open sync.WaitGroup
	ask := func(who string, role access.Role, procedure string) (in bool) {
		ctx := access.With(context.Background(), access.Caller{Name: who, Role: role})
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, procedure, nil)
		r.Header.Set("Content-Type", "application/json")
		out := make(chan int, 1)
		open.Go(func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			out <- w.Code
		})
		select {
		case <-begun:
			return true
		case code := <-out:
			if code != http.StatusTooManyRequests {
				t.Errorf("%s %s: %d", who, procedure, code)
			}
			return false
		}
	}
	const stream, call = fairleadv1connect.ControlWatchEventsProcedure, fairleadv1connect.ControlPlanProcedure
	fill := func(role access.Role, procedure string, most bounds) {
		n := 0
		for c := range 2 * most.all / most.one {
			for k := range most.one + 1 {
				want := k < most.one && n < most.all
				if in := ask(fmt.Sprint("caller ", c), role, procedure); in != want {
					t.Fatalf("call %d of caller %d of role %s, with %d: %v", k, c, role, n, in)
				}
				if want {
					n++
				}
			}
		}
		if n != most.all {
			t.Errorf("%d of %s by role %s, want %d", n, procedure, role, most.all)
		}
	}
	fill(access.View, stream, streamBounds)
	fill(access.Operate, call, callBounds) // as many as without the streams
	fill(access.Administer, stream, streamBounds)
	fill(access.Administer, call, callBounds)
	close(let)
	open.Wait()
	// And all is given back.
	let = make(chan struct{})
	for _, role := range []access.Role{access.View, access.Administer} {
		for _, procedure := range []string{stream, call} {
			if !ask("vic", role, procedure) {
				t.Errorf("%s of role %s afterwards", procedure, role)
			}
		}
	}
	close(let)
	open.Wait()
}
