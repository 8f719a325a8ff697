package health

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// The dumb twin keeps the whole history and looks at its end.
func TestMachineAgainstHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rise := rapid.IntRange(1, 5).Draw(t, "rise")
		fall := rapid.IntRange(1, 5).Draw(t, "fall")
		answers := rapid.SliceOfN(rapid.Bool(), 0, 60).Draw(t, "answers")
		m := NewMachine(rise, fall)
		want := Unknown
		for i, ok := range answers {
			changed := m.Answer(ok)
			before := want
			if endsWith(answers[:i+1], true, rise) {
				want = Up
			} else if endsWith(answers[:i+1], false, fall) || want == Unknown && !ok {
				want = Down
			}
			if m.State() != want || changed != (want != before) {
				t.Fatalf("after %v: %v (changed %v), want %v", answers[:i+1], m.State(), changed, want)
			}
		}
	})
}

func endsWith(answers []bool, what bool, n int) bool {
	if len(answers) < n {
		return false
	}
	for _, a := range answers[len(answers)-n:] {
		if a != what {
			return false
		}
	}
	return true
}

// fakeProber fails for the servers it is told to and counts its calls.
type fakeProber struct {
	mu    sync.Mutex
	bad   map[string]bool
	times map[string][]time.Time
}

func (p *fakeProber) Probe(_ context.Context, t Target) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times[t.Server] = append(p.times[t.Server], time.Now())
	if p.bad[t.Server] {
		return errors.New("out of order")
	}
	return nil
}

func target(slot uint16, server string) Target {
	return Target{VIP: 1, Slot: slot, Server: server, Type: "tcp", Interval: time.Second,
		Timeout: time.Second, Rise: 2, Fall: 3, Address: netip.MustParseAddrPort("10.0.0.1:80")}
}

func TestCheckerFollowsServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProber{bad: map[string]bool{"b": true}, times: map[string][]time.Time{}}
		c := NewChecker(p, nil)
		defer c.Close()
		c.SetTargets([]Target{target(0, "a"), target(1, "b")})
		if c.Down(1, 0) || c.Down(1, 1) {
			t.Fatal("a target must count as up before it was checked")
		}
		time.Sleep(5 * time.Second)
		a, _ := c.Report(1, 0)
		b, _ := c.Report(1, 1)
		if a.State != Up || b.State != Down || b.Detail != "out of order" {
			t.Fatalf("after 5 s: a %+v, b %+v", a, b)
		}
		p.mu.Lock()
		p.bad["b"] = false
		p.mu.Unlock()
		// The same target again must not forget what is known.
		c.SetTargets([]Target{target(0, "a"), target(1, "b")})
		if !c.Down(1, 1) {
			t.Fatal("an unchanged target lost its state")
		}
		time.Sleep(4 * time.Second)
		if c.Down(1, 1) {
			t.Fatal("b answers again and is still down")
		}
		// Another server on slot 1 begins as unknown.
		c.SetTargets([]Target{target(0, "a"), target(1, "c")})
		if r, _ := c.Report(1, 1); r.State != Unknown {
			t.Fatalf("the slot's next server inherits %v", r.State)
		}
	})
}

// Checks are an interval apart, a tenth more or less, and do not begin
// together.
func TestCheckerSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProber{times: map[string][]time.Time{}}
		c := NewChecker(p, nil)
		defer c.Close()
		var targets []Target
		for i := range uint16(200) {
			targets = append(targets, target(i, string(rune('a'+i))))
		}
		start := time.Now()
		c.SetTargets(targets)
		time.Sleep(10 * time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		var tenth [10]int
		for _, times := range p.times {
			tenth[min(times[0].Sub(start)*10/time.Second, 9)]++
			for i := 1; i < len(times); i++ {
				if d := times[i].Sub(times[i-1]); d < 900*time.Millisecond || d > 1100*time.Millisecond {
					t.Fatalf("two checks %v apart", d)
				}
			}
		}
		for i, n := range tenth {
			if n > 60 {
				t.Fatalf("%d of 200 first checks in tenth %d of the interval", n, i)
			}
		}
	})
}

// Real sockets over loopback; needs CAP_NET_ADMIN for the mark.
func TestNetworkProbe(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "shop.example" || r.URL.Path != "/ready" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	check := target(0, "a")
	check.Address = netip.MustParseAddrPort(server.Listener.Addr().String())
	check.Type, check.Path, check.Host = "http", "/ready", "shop.example"
	for _, c := range []struct {
		status int
		want   string
	}{{200, ""}, {302, ""}, {404, "HTTP status 404"}, {503, "HTTP status 503"}} {
		status = c.status
		err := Network{}.Probe(t.Context(), check)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("status %d: error %v, want %q", c.status, err, c.want)
		}
	}
	check.Type = "tcp"
	if err := (Network{}).Probe(t.Context(), check); err != nil {
		t.Errorf("tcp check of a listening port: %v", err)
	}
	server.Close()
	if err := (Network{}).Probe(t.Context(), check); err == nil || err.Error() != "connection refused" {
		t.Errorf("tcp check of a closed port: %v", err)
	}
	// A server that accepts and says nothing.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	check.Type, check.Address = "http", netip.MustParseAddrPort(silent.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := (Network{}).Probe(ctx, check); err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("http check of a silent server: %v", err)
	}
}

// An answer over the wire: interim ones before it, half ones, ones without an end, and a
// check that is given up while it waits for one.
func TestAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check := target(0, "a")
	check.Address, check.Type = netip.MustParseAddrPort(l.Addr().String()), "http"
	for what, c := range map[string]struct{ head, again, want string }{
		"interim":          {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "", ""},
		"interim for ever": {"HTTP/1.1 102 Processing\r\n\r\n", "HTTP/1.1 102 Processing\r\n\r\n", "HTTP status 102"},
		"half a body":      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "", "unexpected EOF"},
		"half a head":      {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n", "", "unexpected EOF"},
		"a huge body":      {"HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", 4096), ""},
		"a huge head":      {"HTTP/1.1 200 OK\r\n", "X: " + strings.Repeat("x", 4096) + "\r\n", "unexpected EOF"},
		"no HTTP":          {"SSH-2.0-OpenSSH\r\n\r\n", "", `malformed HTTP response "SSH-2.0-OpenSSH"`},
		"nothing":          {"", "", "unexpected EOF"},
	} {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, err = io.WriteString(conn, c.head)
			for err == nil && c.again != "" {
				_, err = io.WriteString(conn, c.again)
			}
		}()
		err := Network{}.Probe(t.Context(), check)
		if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		<-ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := l.Accept()
		if err == nil {
			defer conn.Close()
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			cancel()
			<-t.Context().Done()
		}
	}()
	if err := (Network{}).Probe(ctx, check); err == nil {
		t.Error("a check that was given up had an answer")
	}
}
