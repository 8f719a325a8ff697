package api

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// TestClients: whoever is asked again and again is asked by one connection; after a call
// without an answer by another, for he may be another by now.
func TestClients(t *testing.T) {
	place := filepath.Join(t.TempDir(), "s")
	var connections atomic.Int32
	serve := func() *http.Server {
		l, err := net.Listen("unix", place)
		if err != nil {
			t.Skip(err) // the folder's name is too long for a socket
		}
		_, handler := fairleadv1connect.NewFairleadHandler(fairleadv1connect.UnimplementedFairleadHandler{})
		s := &http.Server{Handler: handler, ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				connections.Add(1)
			}
		}}
		go s.Serve(l)
		return s
	}
	ask := func(c *Clients) connect.Code {
		t.Helper()
		client, err := c.Dial("unix:"+place, config.TLS{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.GetStatus(context.Background(), connect.NewRequest(&fairleadv1.GetStatusRequest{}))
		return connect.CodeOf(err)
	}
	s := serve()
	var c Clients
	for range 5 {
		if got := ask(&c); got != connect.CodeUnimplemented {
			t.Fatal(got)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 5 calls", n)
	}
	first := c.of[clientKey{endpoint: "unix:" + place}]
	s.Close()
	if got := ask(&c); got != connect.CodeUnavailable || len(c.of) != 0 {
		t.Errorf("%v of one that is gone; %d are kept", got, len(c.of))
	}
	s = serve()
	defer s.Close()
	if got := ask(&c); got != connect.CodeUnimplemented || c.of[clientKey{endpoint: "unix:" + place}] == first {
		t.Error(got)
	}
	var none *Clients
	for range 2 {
		ask(none)
	}
	if n := connections.Load(); n != 4 {
		t.Errorf("%d connections, 2 of them by Dial alone", n)
	}
}
