package certs

import (
	"archive/tar"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/access"
)

func read(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("%s is not PEM", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func authority(t *testing.T) (*Authority, string) {
	t.Helper()
	folder := t.TempDir()
	a, err := Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	return a, folder
}

// TestWhose: a certificate says whose it is, and what it is good for: a machine's for
// servers and clients, a user's for the API alone.
func TestWhose(t *testing.T) {
	a, folder := authority(t)
	for name, role := range map[string]access.Role{"lb1": access.None, "vic": access.View, "otto": access.Operate, "ada": access.Administer} {
		if made, err := a.Issue(Subject{Name: name, Role: role, Endpoints: []string{"https://192.0.2.7:7443"}}); err != nil || !made {
			t.Fatal(made, err)
		}
		if made, err := a.Issue(Subject{Name: name}); err != nil || made {
			t.Errorf("%s again: %v %v", name, made, err)
		}
		c := read(t, filepath.Join(folder, name, "cert.pem"))
		caller := access.OfCertificate(c)
		want := access.Caller{Name: name, Role: role}
		if role == access.None {
			want = access.Caller{Name: name, Role: access.View, Machine: true}
		}
		if caller != want {
			t.Errorf("%+v, want %+v", caller, want)
		}
		if err := access.Usable(c); err != nil {
			t.Error(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(read(t, filepath.Join(folder, "ca.pem")))
		_, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (err == nil) != (role == access.None) {
			t.Errorf("%s as a client of the store: %v", name, err)
		}
		if (len(c.IPAddresses) == 1) != (role == access.None) {
			t.Errorf("%s answers at %v", name, c.IPAddresses)
		}
	}
	for _, bad := range []string{"", "../x", ".hidden", "ca.pem", "a/b", strings.Repeat("n", 65)} {
		if _, err := a.Issue(Subject{Name: bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestHalfAuthority: a key is never written over, and one without its certificate goes.
func TestHalfAuthority(t *testing.T) {
	_, folder := authority(t)
	ca, keyPath := filepath.Join(folder, "ca.pem"), filepath.Join(folder, "ca.key")
	key, err := os.ReadFile(keyPath)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(ca, filepath.Join(folder, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err == nil || !strings.Contains(err.Error(), "put it back") {
		t.Errorf("without its certificate: %v", err)
	}
	if now, err := os.ReadFile(keyPath); err != nil || !bytes.Equal(now, key) {
		t.Errorf("the key is another one: %v", err)
	}
	if _, err := os.Stat(ca); err == nil {
		t.Error("there is a certificate")
	}
	if err := os.Rename(filepath.Join(folder, "elsewhere"), ca); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder); err != nil {
		t.Errorf("put back: %v", err)
	}

	// Where one of the two cannot be written, neither is there.
	for _, bad := range []string{"ca.key", "ca.pem"} {
		a := &Authority{folder: t.TempDir()}
		path := map[string]string{"ca.key": filepath.Join(a.folder, "ca.key"), "ca.pem": filepath.Join(a.folder, "ca.pem")}
		path[bad] = filepath.Join(a.folder, "nosuch", bad)
		if err := a.make(path["ca.pem"], path["ca.key"]); err == nil {
			t.Fatalf("%s was written", bad)
		}
		if left, err := os.ReadDir(a.folder); err != nil || len(left) > 0 {
			t.Errorf("without %s there is %v: %v", bad, left, err)
		}
	}
}

// TestBundle: what goes to its machine at once leaves no key behind, and works there.
func TestBundle(t *testing.T) {
	a, folder := authority(t)
	var out bytes.Buffer
	if err := a.Bundle(Subject{Name: "s1"}, &out); err != nil {
		t.Fatal(err)
	}
	there := t.TempDir()
	var names []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil || h.Mode != 0o600 {
			t.Fatal(h, err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(there, h.Name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
	if !slices.Equal(names, []string{"ca.pem", "cert.pem", "key.pem"}) {
		t.Error(names)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(there, "cert.pem"), filepath.Join(there, "key.pem")); err != nil {
		t.Error(err)
	}
	err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), "key") {
			t.Errorf("%s was left behind", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := a.Bundle(Subject{Name: "s1"}, io.Discard); err == nil {
		t.Error("another one was made")
	}
}

// TestRenew: what ends soon is signed anew, for the same key and subject; the rest, and
// the authority, stay; what is another authority's is named.
func TestRenew(t *testing.T) {
	a, folder := authority(t)
	for _, s := range []Subject{{Name: "lb1", Endpoints: []string{"https://192.0.2.7:1"}}, {Name: "otto", Role: access.Operate}} {
		if _, err := a.Issue(s); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(folder, name, "cert.pem") }
	lb1, otto, ca := read(t, at("lb1")), read(t, at("otto")), read(t, filepath.Join(folder, "ca.pem"))
	if renewed, err := a.Renew(30 * 24 * time.Hour); err != nil || len(renewed) != 0 {
		t.Errorf("%v %v", renewed, err)
	}
	renewed, err := a.Renew(UserLife + time.Hour)
	if err != nil || len(renewed) != 1 || renewed[0].Name != "otto" {
		t.Fatalf("%v %v", renewed, err)
	}
	now := read(t, at("otto"))
	if now.SerialNumber.Cmp(otto.SerialNumber) == 0 || now.Subject.String() != otto.Subject.String() || access.OfCertificate(now).Role != access.Operate || now.NotAfter.Before(otto.NotAfter) {
		t.Errorf("%+v", now.Subject)
	}
	if _, err := tls.LoadX509KeyPair(at("otto"), filepath.Join(folder, "otto", "key.pem")); err != nil {
		t.Errorf("the key is another one: %v", err)
	}
	if !read(t, at("lb1")).Equal(lb1) || !read(t, filepath.Join(folder, "ca.pem")).Equal(ca) {
		t.Error("what was good for longer is another one")
	}
	other, _ := authority(t)
	if _, err := other.Issue(Subject{Name: "s1"}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other.folder, "s1"), filepath.Join(folder, "s1")); err != nil {
		t.Fatal(err)
	}
	if renewed, err := a.Renew(MachineLife + 24*time.Hour); err == nil || !strings.Contains(err.Error(), "this authority did not sign it") || len(renewed) != 2 {
		t.Errorf("%v %v", renewed, err)
	}
}
