package api

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

type clockOnly struct {
	fairleadv1connect.UnimplementedFairleadHandler
}

func (clockOnly) GetTime(context.Context, *connect.Request[fairleadv1.GetTimeRequest]) (*connect.Response[fairleadv1.GetTimeResponse], error) {
	return connect.NewResponse(&fairleadv1.GetTimeResponse{SharedMs: 42}), nil
}

// authority signs certificates of 127.0.0.1 and writes them as PEM files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (a *authority) issue(t *testing.T, name string) config.TLS {
	return a.issueUntil(t, name, time.Now().Add(time.Hour))
}

func (a *authority) issueUntil(t *testing.T, name string, end time.Time) config.TLS {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, NotBefore: time.Now().Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, _ := x509.MarshalPKCS8PrivateKey(key)
	return config.TLS{CA: filepath.Join(a.dir, "ca.pem"), Cert: a.write(t, name+".pem", "CERTIFICATE", der), Key: a.write(t, name+".key", "PRIVATE KEY", keyDER)}
}

// TestDialHTTPS: both sides must show a certificate of the deployment's
// authority.
func TestDialHTTPS(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	serverTLS := ours.issue(t, "lb1")
	pair, err := tls.LoadX509KeyPair(serverTLS.Cert, serverTLS.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewFairleadHandler(clockOnly{}))
	s := httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = nil
	s.StartTLS()
	defer s.Close()

	mixed := others.issue(t, "spy") // trusts us, but we do not trust it
	mixed.CA = serverTLS.CA
	for _, c := range []struct {
		name string
		tls  config.TLS
		ok   bool
		says string
	}{
		{"ours", ours.issue(t, "s1"), true, ""},
		{"another authority's", others.issue(t, "s1"), false, "unknown authority"},
		{"a client of another authority", mixed, false, ""},
		{"one that is over", ours.issueUntil(t, "old", time.Now().Add(-time.Minute)), false, "old.pem (of old) ended on"},
	} {
		client, err := Dial(s.URL, c.tls)
		if err != nil {
			t.Fatal(err)
		}
		r, err := client.GetTime(t.Context(), connect.NewRequest(&fairleadv1.GetTimeRequest{}))
		if (err == nil) != c.ok || err == nil && r.Msg.SharedMs != 42 || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestDialRefuses: what cannot be dialled is said before the first call.
func TestDialRefuses(t *testing.T) {
	here := t.TempDir()
	empty := filepath.Join(here, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		endpoint string
		tls      config.TLS
		want     string
	}{
		{"http://127.0.0.1:1", config.TLS{}, "write unix:/path or https://address:port"},
		{"", config.TLS{}, "write unix:/path or https://address:port"},
		{"https://127.0.0.1:1", config.TLS{}, "name tls.ca, tls.cert and tls.key"},
		{"https://127.0.0.1:1", config.TLS{CA: here + "/nosuch.pem"}, "tls.ca: open"},
		{"https://127.0.0.1:1", config.TLS{CA: empty}, "holds no certificate"},
	} {
		if _, err := Dial(c.endpoint, c.tls); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.endpoint, err, c.want)
		}
	}
}
