package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestStandardClients runs what people try first - curl, wrk, iperf3, large
// up- and downloads - through the VIPs while a server drains and a daemon is
// killed.
//
//	client ── router ──┬─ lb1 lb2
//	                   └─ server1 … server4
func TestStandardClients(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Forwarding: "ipip", MTU: 1500}, // no room: agents clamp the MSS
		{Forwarding: "gue", IPv6: true, Policy: "p2c"},
		{Forwarding: "l2", Policy: "least-conn"},
	} {
		t.Run(o.Forwarding, func(t *testing.T) {
			t.Parallel()
			testStandardClients(t, o)
		})
	}
}

func testStandardClients(t *testing.T, o Options) {
	o.Name, o.Program, o.Servers, o.LBs = fmt.Sprint("clients", o.Forwarding, os.Getpid()), testProgram(t), 4, 2
	l, err := Up(t.Context(), o, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			logs(t, l)
		}
		if err := Down(l.Name); err != nil {
			t.Error(err)
		}
	})
	host := strings.Trim(l.vipHost(), "[]")
	upload := filepath.Join(t.TempDir(), "upload")
	content := make([]byte, 100_000_000)
	_, _ = rand.Read(content)
	if err := os.WriteFile(upload, content, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := crc32.ChecksumIEEE(content)

	var clients sync.WaitGroup
	run := func(check func(string) bool, command ...string) {
		clients.Go(func() {
			out, err := runIn(t.Context(), l, "client", command...)
			if err != nil || !check(out) {
				t.Errorf("%s: %v\n%.2000s", strings.Join(command, " "), err, out)
			}
		})
	}
	contains := func(want string) func(string) bool {
		return func(got string) bool { return strings.Contains(got, want) }
	}
	load, err := l.startLoad(t.Context(), LoadPlan{Seed: 1, Seconds: 15, Stream: 20, Upload: 20, Idle: 20,
		Targets: []Target{{"web", net.JoinHostPort(host, "80")}}})
	if err != nil {
		t.Fatal(err)
	}
	run(contains("server"), "curl", "-sS", "-m", "60", l.URL())
	run(contains("100000000"), "curl", "-sS", "-m", "120", "-o", "/dev/null", "-w", "%{size_download}", l.URL()+"bytes/100000000")
	run(contains(fmt.Sprintf("received 100000000 bytes crc32 %08x", sum)), "curl", "-sS", "-m", "120", "-T", upload, l.URL()+"upload")
	run(func(out string) bool {
		return strings.Contains(out, "Requests/sec") && !strings.Contains(out, "Socket errors") && !strings.Contains(out, "Non-2xx")
	}, "wrk", "-t2", "-c20", "-d5s", "--timeout", "20s", l.URL())
	run(contains("receiver"), "iperf3", "-c", host, "-t", "4")

	c := &churn{lab: l, gone: map[string]bool{}}
	change := func(what string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	change("drain server2", c.drain(t.Context(), "server2"))
	change("kill lb1's daemon", l.KillDaemon("lb1"))
	change("start lb1's daemon", l.StartDaemon(t.Context(), "lb1"))
	change("kill server3's agent", l.KillDaemon("server3"))
	change("start server3's agent", l.StartDaemon(t.Context(), "server3"))
	clients.Wait()
	// While a server drains, datagrams of a new flow may be of an old one for
	// all that a balancer knows, and go to it; the control connection does not.
	change("server2 takes new connections again", c.undrain(t.Context(), "server2"))
	// One server at a time: the same iperf3 serves both protocols.
	run(contains("receiver"), "iperf3", "-u", "-b", "50M", "-c", host, "-t", "2")
	clients.Wait()

	last, err := load.wait()
	if err != nil {
		t.Fatal(err)
	}
	if tally := last.Tallies["web"]; tally.Completed != 60 {
		t.Errorf("%+v: %+v", tally, last.Failures)
	}
}

// TestPathMTU: full-size uploads fit no tunnel, so the balancer answers
// "packet too big" to the client; then the client's link shrinks, and the
// router's "packet too big" to the VIP has to find the server whose packet it
// quotes.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	o := Options{Name: fmt.Sprint("mtu", os.Getpid()), Program: testProgram(t), MTU: 1500, Servers: 2}
	for i, a := range []netip.Addr{vipAddress4(1), vipAddress6(1)} {
		o.VIPs = append(o.VIPs, VIP{Name: fmt.Sprint("web", i), Address: a, Port: httpPort, Protocol: "tcp", Scheme: "cheetah", Policy: "rr", NoClamp: true})
	}
	l, err := Up(t.Context(), o, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Down(l.Name); err != nil {
			t.Error(err)
		}
	})
	upload := filepath.Join(t.TempDir(), "upload")
	if err := os.WriteFile(upload, bytes.Repeat([]byte("fairlead"), 500_000), 0o600); err != nil {
		t.Fatal(err)
	}
	curl := func(want string, args ...string) {
		t.Helper()
		out, err := runIn(t.Context(), l, "client", append([]string{"curl", "-sS", "-m", "60"}, args...)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("curl %v: %v\n%.500s", args, err, out)
		}
	}
	for _, v := range l.VIPs {
		curl("received 4000000 bytes", "-T", upload, "http://"+v.Endpoint()+"/upload")
	}
	if n := reason(t, l, "reply_too_big"); n == 0 {
		t.Error("no balancer said that a packet is too big: the uploads had room")
	}
	if out, err := runIn(t.Context(), l, "router", "ip", "link", "set", "client", "mtu", "1300"); err != nil {
		t.Fatal(err, out)
	}
	for _, v := range l.VIPs {
		// Several, so that both servers have to learn.
		for range 4 {
			curl("3000000", "-o", "/dev/null", "-w", "%{size_download}", "http://"+v.Endpoint()+"/bytes/3000000")
		}
	}
	if n := reason(t, l, "forward_icmp"); n == 0 {
		t.Error("no ICMP error went to a server")
	}
}

// reason sums a reason's packets over the balancers.
func reason(t *testing.T, l *Lab, name string) (packets uint64) {
	t.Helper()
	for _, m := range l.fronts() {
		status, err := l.daemonStatus(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range status.Reasons {
			if r.Name == name {
				packets += r.Packets
			}
		}
	}
	return packets
}

// runIn runs a command in a machine, for at most three minutes.
func runIn(ctx context.Context, l *Lab, machine string, command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.Program, append([]string{"lab", "exec", "--lab", l.Name, machine, "--"}, command...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// logs shows the ends of the daemons' logs.
func logs(t *testing.T, l *Lab) {
	for _, m := range append(l.fronts(), l.servers()...) {
		t.Logf("%s: %s", m, l.logEnd(m))
	}
}
