// Package certs makes a deployment's certificates: an authority, one for each machine,
// and one for each user with a role (api/access). An authority is a folder:
//
//	ca.pem, ca.key            its own; the key never leaves the folder
//	NAME/ca.pem cert.pem key.pem   a machine's or a user's; key.pem is missing where
//	                          it was handed out by itself (Bundle)
package certs

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api/access"
)

const (
	// MachineLife is how long machines' certificates and authorities are good, and
	// UserLife users'. Who wants other lives has an authority already.
	MachineLife = 10 * 365 * 24 * time.Hour
	UserLife    = 365 * 24 * time.Hour
)

// Authority signs certificates.
type Authority struct {
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// Subject is whom a certificate is for.
type Subject struct {
	Name string
	// Endpoints are where a machine answers; sockets count nothing.
	Endpoints []string
	// Role is a user's; None: this is a machine.
	Role access.Role
}

// Open reads the authority in folder, or makes one.
func Open(folder string) (*Authority, error) {
	a := &Authority{folder: folder}
	certPath, keyPath := filepath.Join(folder, "ca.pem"), filepath.Join(folder, "ca.key")
	certPEM, err := os.ReadFile(certPath)
	if errors.Is(err, fs.ErrNotExist) {
		return a, a.make(certPath, keyPath)
	}
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	keyPEM, err := os.ReadFile(keyPath)
	if err != nil {
		return nil, fmt.Errorf("read authority's key: %w; without it no more can be signed: name another folder to begin anew", err)
	}
	cert, _ := pem.Decode(certPEM)
	key, _ := pem.Decode(keyPEM)
	if cert == nil || key == nil {
		return nil, fmt.Errorf("%s and %s are not PEM; name another folder to begin anew", certPath, keyPath)
	}
	if a.cert, err = x509.ParseCertificate(cert.Bytes); err != nil {
		return nil, fmt.Errorf("%s: %w", certPath, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyPath, err)
	}
	var ok bool
	if a.key, ok = parsed.(*ecdsa.PrivateKey); !ok || !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return nil, fmt.Errorf("%s is not the key of %s; name another folder to begin anew", keyPath, certPath)
	}
	return a, nil
}

// Ends is when the authority does, and with it all that it signed.
func (a *Authority) Ends() time.Time { return a.cert.NotAfter }

func (a *Authority) make(certPath, keyPath string) (err error) {
	if _, err := os.Lstat(keyPath); err == nil {
		return fmt.Errorf("%s is there, and %s is missing: put it back (each machine's and user's folder has a copy), or name another folder to begin anew", keyPath, certPath)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read authority's key: %w", err)
	}
	if err := os.MkdirAll(a.folder, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	t := template(pkix.Name{CommonName: "fairlead"}, MachineLife)
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &a.key.PublicKey, a.key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	key, err := encodeKey(a.key)
	if err != nil {
		return err
	}
	if err := write(keyPath, key); err != nil {
		return err
	}
	if err := write(certPath, encode("CERTIFICATE", der)); err != nil {
		return errors.Join(err, os.Remove(keyPath)) // nothing is signed by it
	}
	return nil
}

// Issue makes the folder of s; made is false if it is there already.
func (a *Authority) Issue(s Subject) (made bool, err error) {
	files, err := a.sign(s)
	if err != nil {
		return false, err
	}
	return a.keep(s.Name, files...)
}

// Bundle makes what Issue does as a tar archive, and keeps no key of it.
func (a *Authority) Bundle(s Subject, out io.Writer) error {
	files, err := a.sign(s)
	if err != nil {
		return err
	}
	made, err := a.keep(s.Name, files[0], files[1]) // all but the key
	if err == nil && !made {
		err = fmt.Errorf("%s is there already; remove it to give %s another one", filepath.Join(a.folder, s.Name), s.Name)
	}
	if err != nil {
		return err
	}
	t := tar.NewWriter(out)
	for _, f := range files {
		err = errors.Join(err, t.WriteHeader(&tar.Header{Name: f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: time.Now()}))
		if err == nil {
			_, err = t.Write(f.data)
		}
	}
	return errors.Join(err, t.Close())
}

// file is one of NAME's.
type file struct {
	name string
	data []byte
}

// sign makes ca.pem, cert.pem and key.pem for s.
func (a *Authority) sign(s Subject) ([]file, error) {
	if s.Name == "" || strings.ContainsAny(s.Name, "/\x00") || strings.HasPrefix(s.Name, ".") || strings.HasPrefix(s.Name, "ca.") || len(s.Name) > 64 {
		return nil, fmt.Errorf("name %q: write one that a folder may have, of up to 64 bytes", s.Name)
	}
	subject, life := pkix.Name{CommonName: s.Name}, MachineLife
	if s.Role != access.None {
		subject.OrganizationalUnit, life = []string{s.Role.Unit()}, UserLife
	}
	t := template(subject, life)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	if s.Role != access.None {
		t.UnknownExtKeyUsage = []asn1.ObjectIdentifier{access.UserUsage}
	} else {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		t.DNSNames = []string{s.Name}
		answersAt(t, s)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := a.certificate(t, &key.PublicKey)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	return []file{{"ca.pem", encode("CERTIFICATE", a.cert.Raw)}, {"cert.pem", cert}, {"key.pem", keyPEM}}, err
}

// answersAt adds the addresses and names that a machine answers at.
func answersAt(t *x509.Certificate, s Subject) {
	for _, endpoint := range s.Endpoints {
		address, remote := strings.CutPrefix(endpoint, "https://")
		host, _, err := net.SplitHostPort(strings.TrimSuffix(address, "/"))
		if !remote || err != nil {
			continue // a socket of its own machine
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			t.IPAddresses = append(t.IPAddresses, ip.AsSlice())
		} else if host != s.Name {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
}

// certificate signs t; it does not outlive the authority.
func (a *Authority) certificate(t *x509.Certificate, key crypto.PublicKey) ([]byte, error) {
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key, a.key)
	if err != nil {
		return nil, err
	}
	return encode("CERTIFICATE", der), nil
}

// keep makes name's folder with files, unless it is there: under another name first,
// so that a folder that is there is whole.
func (a *Authority) keep(name string, files ...file) (made bool, err error) {
	folder := filepath.Join(a.folder, name)
	if _, err := os.Stat(folder); err == nil {
		return false, nil
	}
	half, err := os.MkdirTemp(a.folder, "."+name+"-")
	if err != nil {
		return false, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(half)
	for _, f := range files {
		if err := write(filepath.Join(half, f.name), f.data); err != nil {
			return false, err
		}
	}
	return true, os.Rename(half, folder)
}

func template(subject pkix.Name, life time.Duration) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	// An hour back, for machines whose clocks are behind.
	from := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: from, NotAfter: from.Add(life)}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return encode("PRIVATE KEY", der), err
}

// write replaces a file as a whole.
func write(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // of mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = io.Copy(f, bytes.NewReader(data))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
