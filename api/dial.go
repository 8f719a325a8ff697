package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// MaxMessage bounds a request and an answer, in bytes: an assignment of 16,384
// slots takes some 4 MB.
const MaxMessage = 64 << 20

// dialTimeout bounds how long a machine that is gone holds up a caller.
const dialTimeout = 3 * time.Second

// Dial makes a client of the daemon at endpoint: unix:/path, or
// https://address:port with the certificates that t names. Nothing is sent
// before the first call. It fails for an endpoint of no such form and for
// certificates that cannot be read.
func Dial(endpoint string, t config.TLS) (fairleadv1connect.FairleadClient, error) {
	client, base, err := dial(endpoint, t)
	if err != nil {
		return nil, err
	}
	return fairleadv1connect.NewFairleadClient(client, base, connect.WithReadMaxBytes(MaxMessage)), nil
}

// dial is a client and the URL that it calls.
func dial(endpoint string, t config.TLS) (client *http.Client, base string, err error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4,
		DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout}
	switch {
	case strings.HasPrefix(endpoint, "unix:"):
		path := strings.TrimPrefix(endpoint, "unix:")
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		base = "http://fairlead"
	case strings.HasPrefix(endpoint, "https://"):
		c, err := ClientTLS(t)
		if err != nil {
			return nil, "", fmt.Errorf("api %s: %w", endpoint, err)
		}
		transport.TLSClientConfig = c
		transport.ForceAttemptHTTP2 = true
		base = strings.TrimSuffix(endpoint, "/")
	default:
		return nil, "", fmt.Errorf("api %s: write unix:/path or https://address:port", endpoint)
	}
	return &http.Client{Transport: transport}, base, nil
}

// certsRemedy ends errors about the files that tls names.
const certsRemedy = "make them with `fairlead certs FOLDER`, or run this where the daemons' files are"

// ClientTLS is for connections to whoever has a certificate of the deployment,
// with this machine's own, read for each. It fails where they cannot be read.
func ClientTLS(t config.TLS) (*tls.Config, error) {
	if t == (config.TLS{}) {
		return nil, fmt.Errorf("https needs certificates; name tls.ca, tls.cert and tls.key in the file")
	}
	pem, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("tls.ca: %w; %s", err, certsRemedy)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.ca: %s holds no certificate, and must be PEM; %s", t.CA, certsRemedy)
	}
	return &tls.Config{
		RootCAs: roots,
		// Read for each connection, so that a renewed certificate needs no restart.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, own("tls.cert and tls.key: %v; %s", err, certsRemedy)
			}
			if err := period(t.Cert, c.Leaf, time.Now()); err != nil {
				return nil, err
			}
			return &c, nil
		},
		MinVersion: tls.VersionTLS13,
	}, nil
}

// ErrorText is an error as people read it: without connect's code before it.
func ErrorText(err error) string {
	if err == nil {
		return ""
	}
	// Not by errors.As: what is made of several errors has a text of its own.
	for e := err; e != nil; e = errors.Unwrap(e) {
		if c, ok := e.(*connect.Error); ok && c.Code() == connect.CodeDeadlineExceeded {
			return "no answer in time"
		} else if ok {
			return c.Message()
		}
	}
	return err.Error()
}
