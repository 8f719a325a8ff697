package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/daemon/daemontest"
)

// timeOnly is a daemon that tells the time.
type timeOnly struct {
	fairleadv1connect.UnimplementedFairleadHandler
}

func (timeOnly) GetTime(context.Context, *connect.Request[fairleadv1.GetTimeRequest]) (*connect.Response[fairleadv1.GetTimeResponse], error) {
	return connect.NewResponse(&fairleadv1.GetTimeResponse{SharedMs: 1}), nil
}

// silent opens a connection from a source and says nothing; it ends with the test.
func silent(t *testing.T, from, to string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// open is how many of the connections their other end has not closed.
func open(conns []net.Conn) (n int) {
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		var timeout net.Error
		if _, err := c.Read(make([]byte, 1)); errors.As(err, &timeout) && timeout.Timeout() {
			n++
		}
	}
	return n
}

// TestSilentConnections: whoever opens connections and says nothing keeps no more
// than a door's, whatever sources he has; peers that come meanwhile, from one of
// these too, are heard, and those that were there stay. Without guards all stay
// open.
func TestSilentConnections(t *testing.T) {
	certs := daemontest.Certificates(t, t.TempDir(), net.IPv4(127, 0, 0, 1))
	const most, attack = 20, 100
	for _, unguarded := range []bool{false, true} {
		t.Run(fmt.Sprint("unguarded=", unguarded), func(t *testing.T) {
			var log strings.Builder
			var logged sync.Mutex
			of := &Daemon{Log: slog.New(slog.NewTextHandler(locked{&logged, &log}, nil)), TLS: certs, Unguarded: unguarded, refused: newRefused()}
			l, err := of.listen("https://127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := l.Addr().String()
			var d *door
			if !unguarded {
				d = doorOf(t, l)
				d.most = most
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			mux := http.NewServeMux()
			mux.Handle(fairleadv1connect.NewFairleadHandler(timeOnly{}))
			go func() { ended <- serve(ctx, httpServer(mux, slog.New(slog.DiscardHandler)), l) }()
			var silents []net.Conn
			defer func() {
				for _, c := range silents {
					c.Close()
				}
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
					t.Errorf("a peer is not heard: %v", err)
				}
			}
			dial := func() fairleadv1connect.FairleadClient {
				t.Helper()
				c, err := api.Dial("https://"+address, certs)
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			before := dial()
			ask(before, false)
			for i := range attack {
				// 127.0.0.1 is the peers' own, as behind one address translator.
				silents = append(silents, silent(t, fmt.Sprintf("127.0.0.%d", 1+i%3), address))
				if i%10 == 9 {
					ask(before, true)
					ask(dial(), false)
				}
			}
			if unguarded {
				if n := open(silents); n != attack {
					t.Errorf("%d of %d are open: this is no attack", n, attack)
				}
				return
			}
			if n := open(silents); n > most || n < most-2 {
				t.Errorf("%d of %d are open, of which the door keeps %d", n, attack, most)
			}
			d.mu.Lock()
			if d.n > most {
				t.Errorf("the door counts %d", d.n)
			}
			for source, of := range d.strangers {
				if len(of) > most/2 {
					t.Errorf("%d of %d are from %s, though others came", len(of), most, source)
				}
			}
			d.mu.Unlock()
			// What their owners close counts no more.
			for _, c := range silents {
				c.Close()
			}
			deadline := time.Now().Add(5 * time.Second)
			for empty := false; !empty; time.Sleep(time.Millisecond) {
				d.mu.Lock()
				empty = d.n == 0 && len(d.strangers) == 0
				d.mu.Unlock()
				if time.Now().After(deadline) {
					t.Fatal("connections that were closed are counted")
				}
			}
			logged.Lock()
			defer logged.Unlock()
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "endpoint=api") || !strings.Contains(text, "127.0.0.") {
				t.Errorf("logged %q, want one line", text)
			}
		})
	}
}

// A source that floods alone loses its own, not those of others.
func TestDoorIsFair(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := newDoor(l, "metrics", newRefused(), slog.New(slog.DiscardHandler))
	d.most = 8
	go func() {
		for {
			if _, err := d.Accept(); err != nil {
				return
			}
		}
	}()
	quiet := []net.Conn{silent(t, "127.0.0.2", l.Addr().String()), silent(t, "127.0.0.3", l.Addr().String())}
	var flood []net.Conn
	for range 50 {
		flood = append(flood, silent(t, "127.0.0.4", l.Addr().String()))
	}
	for deadline := time.Now().Add(5 * time.Second); open(flood) > d.most; {
		if time.Now().After(deadline) {
			t.Fatalf("%d are open", open(flood))
		}
	}
	if open(quiet) != len(quiet) {
		t.Error("a flood from one source closed another's connection")
	}
}

// doorOf is the door of a listener with TLS, which embeds it.
func doorOf(t *testing.T, l net.Listener) *door {
	t.Helper()
	d, ok := reflect.ValueOf(l).Elem().FieldByName("Listener").Interface().(*door)
	if !ok {
		t.Fatalf("%T is behind no door", l)
	}
	return d
}

// locked is a log that several write.
type locked struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
