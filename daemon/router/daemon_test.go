package router

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel/router"
)

// TestOutgrown: what a router cannot take over while it runs is said to need a
// restart, and links alone do not.
func TestOutgrown(t *testing.T) {
	of := func() *topology.Fabric { return &topology.Fabric{Nodes: []topology.Node{{Name: "leaf1"}}} }
	was := of()
	d := &server{fabric: was, node: &was.Nodes[0]}
	for name, change := range map[string]func(*topology.Fabric){
		"selector":   func(f *topology.Fabric) { f.Selector.Radix++ },
		"tls":        func(f *topology.Fabric) { f.TLS.Cert = "other.pem" },
		"plain":      func(f *topology.Fabric) { f.Nodes[0].Plain = true },
		"api":        func(f *topology.Fabric) { f.Nodes[0].API = "https://[::1]:1" },
		"metrics":    func(f *topology.Fabric) { f.Nodes[0].Metrics = "127.0.0.1:1" },
		"interfaces": func(f *topology.Fabric) { f.Nodes[0].Interfaces = []string{"eth1"} },
	} {
		f := of()
		if change(f); !d.outgrown(f, &f.Nodes[0]) {
			t.Errorf("%s changed and no restart is asked for", name)
		}
	}
	f := of()
	f.Links = []topology.Link{{}}
	if d.outgrown(f, &f.Nodes[0]) {
		t.Error("a link changed and a restart is asked for")
	}
}

// TestRouterAPI: JSON has every field, as port 0 is one, and what is too large
// is not read.
func TestRouterAPI(t *testing.T) {
	d := &server{Daemon: &daemon.Daemon{Log: slog.New(slog.DiscardHandler)}, follower: &router.Follower{}}
	d.Enter(daemon.Serving)
	handler := d.handler()
	ask := func(body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, fairleadv1connect.FairleadGetRoutesProcedure, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r = r.WithContext(access.With(r.Context(), access.Caller{Name: "ann", Role: access.View}))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	if got := ask(`{"addresses": ["10.1.2.2"]}`); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"members":[]`) {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := ask(strings.Repeat(" ", api.MaxMessage+1)); got.Code != http.StatusTooManyRequests || !strings.Contains(got.Body.String(), "larger than configured max") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}
