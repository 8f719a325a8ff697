package ctl

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/config"
)

func protoName(method string) protoreflect.Name { return protoreflect.Name(method) }

// expiredCertificate is an administrator's of the authority in folder, which ended an hour ago.
func expiredCertificate(t *testing.T, folder string) config.TLS {
	t.Helper()
	decode := func(path string) []byte {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		return block.Bytes
	}
	ca, err := x509.ParseCertificate(decode(filepath.Join(folder, "ca.pem")))
	if err != nil {
		t.Fatal(err)
	}
	caKey, err := x509.ParsePKCS8PrivateKey(decode(filepath.Join(folder, "ca.key")))
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(decode(filepath.Join(folder, "ada", "key.pem")))
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "old", OrganizationalUnit: []string{access.Administer.Unit()}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, key.(*ecdsa.PrivateKey).Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	files := tlsIn(filepath.Join(folder, "ada"))
	files.Cert = filepath.Join(t.TempDir(), "cert.pem")
	if err := os.WriteFile(files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return files
}
