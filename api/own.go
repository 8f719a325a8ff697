package api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/fairlead/fairlead/config"
)

// What one's own certificate is good for is looked at before others are asked: all that
// they say of it is that a connection ended.

// ErrOwn is what errors about one's own certificate are: nothing was sent.
var ErrOwn = errors.New("own certificate")

// ownError is one of ErrOwn, in its own words.
type ownError struct{ text string }

func (e ownError) Error() string        { return e.text }
func (e ownError) Is(target error) bool { return target == ErrOwn }

func own(format string, args ...any) error { return ownError{fmt.Sprintf(format, args...)} }

const renewRemedy = "run `fairlead certs FOLDER --renew` where the authority is, and copy the cert.pem that it names"

// OwnFault is why, at now, nobody would take the certificate that t names: it cannot be
// read, is over, not yet valid, or not of t's authority. nil: they would, or t names none.
func OwnFault(t config.TLS, now time.Time) error {
	if t == (config.TLS{}) {
		return nil
	}
	leaf, rest, err := certificate(t)
	if err != nil {
		return err
	}
	if err := period(t.Cert, leaf, now); err != nil {
		return err
	}
	authority, err := os.ReadFile(t.CA)
	if err != nil {
		return own("tls.ca: %v; %s", err, certsRemedy)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return own("tls.ca: %s holds no certificate, and must be PEM; %s", t.CA, certsRemedy)
	}
	for _, c := range rest {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		if end, ended := errors.AsType[x509.CertificateInvalidError](err); ended && end.Reason == x509.Expired {
			return own("the authority %s of certificate %s is not valid now (%s): nobody takes it; make a new one with `fairlead certs`, and give all machines theirs", t.CA, t.Cert, end.Detail)
		}
		return own("certificate %s (of %s, by %s) is not of the authority %s: nobody takes it; put the ca.pem, cert.pem and key.pem of one folder there, as `fairlead certs` made them", t.Cert, leaf.Subject.CommonName, leaf.Issuer.CommonName, t.CA)
	}
	return nil
}

// OwnNames says why nobody would take t's certificate of who answers at endpoint:
// it is another machine's. nil: it names it, or endpoint is no https://address:port,
// or the certificate cannot be read, as OwnFault says.
func OwnNames(t config.TLS, endpoint string) error {
	address, remote := strings.CutPrefix(endpoint, "https://")
	host, _, err := net.SplitHostPort(strings.TrimSuffix(address, "/"))
	if !remote || err != nil || t == (config.TLS{}) {
		return nil
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return nil
	}
	leaf, _, err := certificate(t)
	if err != nil || leaf.VerifyHostname(host) == nil {
		return nil
	}
	var names []string
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, leaf.DNSNames...)
	return own("certificate %s is of %s (%s) and does not name %s, where this machine answers: nobody takes it there; put this machine's own there (`fairlead certs FOLDER` makes it by the file's addresses, in a folder of its name)",
		t.Cert, leaf.Subject.CommonName, strings.Join(names, ", "), host)
}

// OwnEnds is when the certificate that t names ends; zero where t names none.
func OwnEnds(t config.TLS) (time.Time, error) {
	if t == (config.TLS{}) {
		return time.Time{}, nil
	}
	leaf, _, err := certificate(t)
	if err != nil {
		return time.Time{}, err
	}
	return leaf.NotAfter, nil
}

// certificate is the certificate that t names, and those beside it in its file.
func certificate(t config.TLS) (leaf *x509.Certificate, rest []*x509.Certificate, err error) {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, nil, own("tls.cert and tls.key: %v; %s", err, certsRemedy)
	}
	for _, der := range pair.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			rest = append(rest, c)
		}
	}
	return pair.Leaf, rest, nil
}

// period says that the certificate in file is over, or not yet valid.
func period(file string, c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return own("certificate %s (of %s) ended on %s: nobody takes it; %s", file, c.Subject.CommonName, c.NotAfter.UTC().Format(time.DateTime), renewRemedy)
	case now.Before(c.NotBefore):
		return own("certificate %s (of %s) is valid from %s, and this machine's clock says %s: nobody takes it; put the clock right", file, c.Subject.CommonName, c.NotBefore.UTC().Format(time.DateTime), now.UTC().Format(time.DateTime))
	}
	return nil
}
