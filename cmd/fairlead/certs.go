package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// certsLife is how long certificates are good. Who wants shorter lives has an
// authority already.
const certsLife = 10 * 365 * 24 * time.Hour

func newCertsCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "certs FOLDER",
		Short: "Make the certificates that daemons authenticate each other with",
		Long: `Makes an authority in FOLDER (ca.pem, and ca.key, which stays where it is) and
for each daemon and controller of the file a folder of its name with ca.pem, cert.pem and
key.pem, good for ten years. Copy each to its machine and name the copies under
tls in the file. What exists is kept, so that daemons that come later get
theirs from the same authority. Any other authority's certificates do as well;
none are needed where every api and store is a unix socket.`,
		Example: "  fairlead certs -f fairlead.yaml ./certs\n  scp certs/s1/* s1:/etc/fairlead/",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := loadFile(cmd, file)
			if err != nil {
				return err
			}
			ca, err := openAuthority(args[0])
			if err != nil {
				return err
			}
			issue := func(name string, endpoints ...string) error {
				made, err := ca.issue(name, endpoints...)
				if err == nil && made {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(args[0], name))
				}
				return err
			}
			for _, s := range cfg.Daemons() {
				if err := issue(s.Name, s.API); err != nil {
					return err
				}
			}
			for _, c := range cfg.Controllers {
				if cfg.Implied() {
					break // it has its balancer's
				}
				if err := issue(c.Name, c.Store, c.Peer); err != nil {
					return err
				}
			}
			return nil
		},
	}
	fileFlag(cmd, &file)
	return cmd
}

// authority signs daemons' certificates.
type authority struct {
	folder string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
}

// openAuthority reads the authority in folder, or makes one.
func openAuthority(folder string) (*authority, error) {
	a := &authority{folder: folder}
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

func (a *authority) make(certPath, keyPath string) (err error) {
	if err := os.MkdirAll(a.folder, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	template := template("fairlead")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	return errors.Join(writeKey(keyPath, a.key), writePEM(certPath, "CERTIFICATE", der))
}

// issue makes the folder of the daemon called name, which answers at endpoints; made
// is false if it is there already.
func (a *authority) issue(name string, endpoints ...string) (made bool, err error) {
	folder := filepath.Join(a.folder, name)
	if _, err := os.Stat(folder); err == nil {
		return false, nil
	}
	t := template(name)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.DNSNames = []string{name}
	for _, endpoint := range endpoints {
		address, remote := strings.CutPrefix(endpoint, "https://")
		host, _, err := net.SplitHostPort(strings.TrimSuffix(address, "/"))
		if !remote || err != nil {
			continue // a socket of its own machine
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			t.IPAddresses = append(t.IPAddresses, ip.AsSlice())
		} else if host != name {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return false, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return false, err
	}
	// Under another name first: a folder that is there is whole.
	half, err := os.MkdirTemp(a.folder, "."+name+"-")
	if err != nil {
		return false, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(half)
	err = errors.Join(
		writePEM(filepath.Join(half, "ca.pem"), "CERTIFICATE", a.cert.Raw),
		writePEM(filepath.Join(half, "cert.pem"), "CERTIFICATE", der),
		writeKey(filepath.Join(half, "key.pem"), key))
	if err != nil {
		return false, err
	}
	return true, os.Rename(half, folder)
}

func template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	// An hour back, for machines whose clocks are behind.
	from := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: from, NotAfter: from.Add(certsLife)}
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}
