package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/cmd/cli/clitest"
)

// TestAskedOnce: where a controller was asked for a change and ends before it answers, no
// other is asked, which would make it again; one that cannot be reached is passed over, and a
// look goes on to the next in any case.
func TestAskedOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctl") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	var asked [3]atomic.Int32
	serve := func(n int, do http.HandlerFunc) {
		l, err := net.Listen("unix", fmt.Sprintf("%s/c%d", dir, n))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked[n-1].Add(1); do(w, r) })}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}
	// The first is not there; the second ends while it is asked.
	serve(2, func(w http.ResponseWriter, r *http.Request) {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			conn.Close()
		}
	})
	serve(3, func(w http.ResponseWriter, r *http.Request) { http.Error(w, "", http.StatusNotFound) })
	file := filepath.Join(dir, "fairlead.yaml")
	text := "secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\ncontrollers:\n"
	for n := 1; n <= 3; n++ {
		text += fmt.Sprintf("- {name: c%d, api: \"unix:%s/c%d\", store: \"https://192.0.2.%d:2379\", peer: \"https://192.0.2.%d:2380\"}\n", n, dir, n, n, n)
	}
	text += `tls: {ca: ca.pem, cert: cert.pem, key: key.pem}
balancers: [{name: lb1, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.0.21}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1]}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, said := clitest.Run(newRootCommand(), "rotate", "-f", file)
	if status != 1 || !strings.Contains(said, "c2 was asked and did not answer") || asked[1].Load() != 1 || asked[2].Load() != 0 {
		t.Errorf("a change: %d, %s; the second was asked %d times, the third %d", status, said, asked[1].Load(), asked[2].Load())
	}
	for i, look := range []string{"history", "plan"} {
		if status, _, said = clitest.Run(newRootCommand(), look, "-f", file); status != 1 || asked[2].Load() != int32(i+1) {
			t.Errorf("%s: %d, %s; the third was asked %d times", look, status, said, asked[2].Load())
		}
	}
}
