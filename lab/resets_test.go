package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netspace"
)

// TestCaptureResets: RSTs are captured with their endpoints, in both families,
// and counted for the connection that got them: as one that should not be, as
// late, or not at all where the server had crashed.
func TestCaptureResets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("captures need root: run the tests with sudo")
	}
	name := namespacePrefix(fmt.Sprint("resets", os.Getpid())) + "x"
	if err := netspace.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netspace.Delete(name) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var c *resetCapture
	var got []endpoints // of clients that were reset
	err := netspace.In(name, func() (err error) {
		if err := netspace.LoopbackUp(); err != nil {
			return err
		}
		if c, err = captureResets(ctx, "lo", false); err != nil {
			return err
		}
		for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			defer listener.Close()
			client, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				return err
			}
			defer client.Close()
			server, err := listener.Accept()
			if err != nil {
				return err
			}
			got = append(got, endpoints{endpointOf(client.LocalAddr()), endpointOf(client.RemoteAddr())})
			_ = server.(*net.TCPConn).SetLinger(0)
			server.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var resets []reset
	if !netspace.WaitFor(5*time.Second, func() bool {
		resets = append(resets, c.take(time.Now())...)
		return len(resets) >= len(got)
	}) {
		t.Fatalf("%d RSTs captured, want %d", len(resets), len(got))
	}
	for _, e := range got {
		if !slices.ContainsFunc(resets, func(r reset) bool { return r.client == e.client && r.vip == e.vip }) {
			t.Errorf("no RST to %v from %v among %v", e.client, e.vip, resets)
		}
	}
	if c.lost() != 0 {
		t.Errorf("%d RSTs missed", c.lost())
	}

	now := time.Now()
	for what, want := range map[string]struct {
		flow flow
		last bool
		want Tally
	}{
		"broken":  {flow{ended: now}, false, Tally{Resets: 1}},
		"late":    {flow{ended: now.Add(-5 * time.Second), whole: true}, false, Tally{LateResets: 1}},
		"lost":    {flow{ended: now, lost: true}, false, Tally{}},
		"waiting": {flow{}, false, Tally{}},
		"open":    {flow{}, true, Tally{Resets: 1}},
	} {
		want.flow.target = "web"
		l := &load{capture: &resetCapture{resets: []reset{{now.Add(-2 * time.Second), got[0].client, got[0].vip}}},
			flows: map[endpoints]*flow{got[0]: &want.flow}, tallies: map[string]*Tally{"web": {}}}
		l.countResets(want.last)
		if *l.tallies["web"] != want.want {
			t.Errorf("%s: %+v, want %+v", what, *l.tallies["web"], want.want)
		}
	}
}

// TestCounters: pairs of lines become nstat's names, and what moved is told.
func TestCounters(t *testing.T) {
	before, after := Counters{}, Counters{}
	if err := before.read([]byte("Tcp: MaxConn OutRsts RetransSegs\nTcp: -1 3 7\n")); err != nil {
		t.Fatal(err)
	}
	if err := after.read([]byte("Tcp: MaxConn OutRsts RetransSegs\nTcp: -1 5 7\nTcpExt: ListenDrops\nTcpExt: 2\n")); err != nil {
		t.Fatal(err)
	}
	moved := after.since(before)
	if len(moved) != 2 || moved["TcpOutRsts"] != 2 || moved["TcpExtListenDrops"] != 2 {
		t.Errorf("%v", moved)
	}
	for _, bad := range []string{"Tcp: OutRsts\n", "Tcp: OutRsts\nUdp: 1\n", "Tcp: OutRsts\nTcp: 1 2\n"} {
		if err := (Counters{}).read([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
