package daemontest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/config"
)

// User makes the certificate of a user with a role, by the CA that Certificates made in
// dir.
func User(t testing.TB, dir string, role access.Role) config.TLS {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	pair := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		check(err)
		block, _ := pem.Decode(data)
		return block.Bytes
	}
	ca, err := x509.ParseCertificate(pair("ca.pem"))
	check(err)
	caKey, err := x509.ParseECPrivateKey(pair("key.pem"))
	check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test of " + role.String(), OrganizationalUnit: []string{role.Unit()}},
		NotBefore: ca.NotBefore, NotAfter: time.Now().Add(time.Hour), UnknownExtKeyUsage: []asn1.ObjectIdentifier{access.UserUsage},
	}, ca, key.Public(), caKey)
	check(err)
	der, err := x509.MarshalECPrivateKey(key)
	check(err)
	folder := t.TempDir()
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(folder, name)
		check(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
		return path
	}
	return config.TLS{CA: filepath.Join(dir, "ca.pem"), Cert: write("cert.pem", "CERTIFICATE", cert), Key: write("key.pem", "EC PRIVATE KEY", der)}
}
