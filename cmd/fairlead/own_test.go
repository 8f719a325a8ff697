package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
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

	rotate := func(folder string) string {
		t.Helper()
		status, _, said := clitest.Run(newRootCommand(), "rotate", "--api", s.URL, "--certs", folder)
		if status != 1 {
			t.Errorf("exit status %d: %s", status, said)
		}
		return said
	}
	const mayBe = "may be made"
	if said := rotate(theirs); strings.Contains(said, mayBe) || !strings.Contains(said, "unknown authority") {
		t.Errorf("all of another deployment: %s", said)
	}
	if err := os.WriteFile(theirs+"/ca.pem", ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := rotate(theirs); !strings.Contains(said, "(of ann, by ") || !strings.Contains(said, "is not of the authority "+theirs+"/ca.pem") {
		t.Errorf("our ca.pem beside another's certificate: %s", said)
	}
}
