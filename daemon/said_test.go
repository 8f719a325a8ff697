package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netspace"
)

// A call that panics is an error in the log, by either version of HTTP, and the daemon
// answers on; what is wrong with a caller alone is none.
func TestPanickingCall(t *testing.T) {
	var text bytes.Buffer
	var mu sync.Mutex
	out := locked{&mu, &text}
	logged := func() string { mu.Lock(); defer mu.Unlock(); return text.String() }
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panic" {
			panic("boom")
		}
	})
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = serve(ctx, httpServer(h, slog.New(slog.NewTextHandler(out, nil))), l) }()
	for version, set := range map[string]func(*http.Protocols){
		"http: ":  func(p *http.Protocols) { p.SetHTTP1(true) },
		"http2: ": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		protocols := new(http.Protocols)
		set(protocols)
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Protocols: protocols,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}}}
		if r, err := client.Get("http://daemon/panic"); err == nil {
			r.Body.Close()
			t.Errorf("%sa call that panicked is answered with %s", version, r.Status)
		}
		said := func() bool {
			return strings.Contains(logged(), `level=ERROR msg="a call panicked: please report it" error="`+version+"panic serving ")
		}
		if !netspace.WaitFor(10*time.Second, said) {
			t.Errorf("%sa panic is not in the log: %s", version, logged())
		}
		r, err := client.Get("http://daemon/")
		if err != nil {
			t.Fatalf("%safter a panic: %v", version, err)
		}
		r.Body.Close()
	}
	before := logged()
	errorLog(slog.New(slog.NewTextHandler(out, nil))).Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	if logged() != before {
		t.Errorf("a caller's fault is in the log: %s", logged()[len(before):])
	}
}
