package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
)

// stuck is a controller that counts three connections, a few times, and then answers no
// more.
type stuck struct {
	fairleadv1connect.UnimplementedControlHandler
	asked atomic.Int32
}

func (*stuck) DrainServer(context.Context, *connect.Request[fairleadv1.DrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error) {
	return connect.NewResponse(&fairleadv1.ChangeResponse{Answered: true, FromVersion: 1, Version: 2, Changes: []string{"version 2: drain s1"}}), nil
}

func (s *stuck) Describe(ctx context.Context, _ *connect.Request[fairleadv1.DescribeRequest]) (*connect.Response[fairleadv1.DescribeResponse], error) {
	if s.asked.Add(1) > 3 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	slot := &fairleadv1.DescribedSlot{Server: "s1", Counted: true, Connections: 3}
	return connect.NewResponse(&fairleadv1.DescribeResponse{Vips: []*fairleadv1.DescribedVIP{{Name: "web", Slots: []*fairleadv1.DescribedSlot{slot}}}}), nil
}

// TestWaitEnds: --timeout bounds a call, too, and the last count stands; all calls go over
// one connection.
func TestWaitEnds(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctl") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", dir+"/c")
	if err != nil {
		t.Fatal(err)
	}
	var connections atomic.Int32
	_, handler := fairleadv1connect.NewControlHandler(&stuck{})
	s := &http.Server{Handler: handler, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}}
	go s.Serve(l)
	defer s.Close()
	began := time.Now()
	status, _, said := clitest.Run(newRootCommand(), "drain", "web", "s1", "--wait", "--timeout", "3s", "--api", "unix:"+dir+"/c", "-f", dir+"/nosuch")
	if status != 1 || !strings.Contains(said, "3 connections are left after 3s") {
		t.Errorf("%d %s", status, said)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := connections.Load(); n != 2 { // the change's, and all counts'
		t.Errorf("%d connections", n)
	}
}
