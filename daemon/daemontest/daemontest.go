// Package daemontest is what tests of daemons have in common.
package daemontest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
)

// Patience is how long a test waits for what is going to be.
const Patience = 20 * time.Second

// Certificates makes one CA and one certificate that all daemons share, as ca.pem,
// cert.pem and key.pem in dir. They serve at address.
func Certificates(t testing.TB, dir string, address net.IP) config.TLS {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fairlead test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{address},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(err)
	der, err := x509.MarshalECPrivateKey(key)
	check(err)
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		return path
	}
	return config.TLS{CA: write("ca.pem", "CERTIFICATE", cert), Cert: write("cert.pem", "CERTIFICATE", cert), Key: write("key.pem", "EC PRIVATE KEY", der)}
}
