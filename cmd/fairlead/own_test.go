package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
)

// TestOwnCertificate: who has a certificate of another deployment is told so, or that the
// controller's is of another, and not that a change may be made: there was no handshake.
func TestOwnCertificate(t *testing.T) {
	t.Setenv(certsVariable, "")
	dir := t.TempDir()
	made := func(authority, name string) string {
		a, err := certs.Open(filepath.Join(dir, authority))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Issue(certs.Subject{Name: name, Endpoints: []string{"https://127.0.0.1:1"}}); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, authority, name)
	}
	c1, theirs := made("ours", "c1"), made("theirs", "ann")
	pair, err := tls.LoadX509KeyPair(c1+"/cert.pem", c1+"/key.pem")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(c1 + "/ca.pem")
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()

	rotate := func(folder, at string) string {
		t.Helper()
		status, _, said := clitest.Run(newRootCommand(), "rotate", "--api", at, "--certs", folder)
		if status != 1 {
			t.Errorf("exit status %d: %s", status, said)
		}
		return said
	}
	const mayBe = "may be made"
	if said := rotate(theirs, s.URL); strings.Contains(said, mayBe) || !strings.Contains(said, "unknown authority") {
		t.Errorf("all of another deployment: %s", said)
	}
	if err := os.WriteFile(theirs+"/ca.pem", ca, 0o600); err != nil {
		t.Fatal(err)
	}
	// The refusal may be lost: the connection is reset behind the request.
	lossy := lossy(t, pair)
	for _, at := range []string{s.URL, lossy} {
		if said := rotate(theirs, at); strings.Contains(said, mayBe) || !strings.Contains(said, "(of ann, by ") || !strings.Contains(said, "is not of the authority "+theirs+"/ca.pem") {
			t.Errorf("our ca.pem beside another's certificate, %s: %s", at, said)
		}
	}
	// Whoever was asked with a good certificate may have made it.
	if said := rotate(c1, lossy); !strings.Contains(said, mayBe) {
		t.Errorf("a connection that was reset: %s", said)
	}
}

// lossy is where a controller resets connections when it has read what was asked.
func lossy(t *testing.T, pair tls.Certificate) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			c := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"h2"}})
			_, _ = c.Read(make([]byte, 1)) // whatever came of it, it ends here
			_ = raw.(*net.TCPConn).SetLinger(0)
			_ = raw.Close()
		}
	}()
	return "https://" + l.Addr().String()
}
