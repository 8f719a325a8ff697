package certs

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/api/access"
)

// Renewed is a certificate that was signed anew.
type Renewed struct {
	Name string
	File string // cert.pem, which is to be copied where the old one is
	Ends time.Time
}

// Renew signs all certificates anew that end within a time from now, for the keys that
// they are for, so that no key goes anywhere. What this authority did not sign is an
// error, and is left as it is.
func (a *Authority) Renew(within time.Duration) (renewed []Renewed, err error) {
	entries, err := os.ReadDir(a.folder)
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(a.folder, e.Name(), "cert.pem")
		if !e.IsDir() {
			continue
		}
		r, oneErr := a.renew(e.Name(), path, within)
		if oneErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", path, oneErr))
		} else if r != nil {
			renewed = append(renewed, *r)
		}
	}
	return renewed, err
}

// renew is Renew of one; nil: it is good for longer.
func (a *Authority) renew(name, path string, within time.Duration) (*Renewed, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a folder of something else
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("not PEM")
	}
	old, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := old.CheckSignatureFrom(a.cert); err != nil {
		return nil, fmt.Errorf("this authority did not sign it: %w", err)
	}
	if time.Until(old.NotAfter) > within {
		return nil, nil
	}
	life := MachineLife
	if !access.OfCertificate(old).Machine {
		life = UserLife
	}
	t := template(old.Subject, life)
	t.KeyUsage, t.ExtKeyUsage, t.UnknownExtKeyUsage = old.KeyUsage, old.ExtKeyUsage, old.UnknownExtKeyUsage
	t.DNSNames, t.IPAddresses = old.DNSNames, old.IPAddresses
	cert, err := a.certificate(t, old.PublicKey)
	if err != nil {
		return nil, err
	}
	return &Renewed{name, path, t.NotAfter}, write(path, cert)
}
