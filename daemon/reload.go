package daemon

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
)

// What a machine has for itself, its file and its certificates, is read again when
// somebody says so, by SIGHUP or by the API:
//
//	Again ─▶ certificates: whole? ─▶ Reload, the role's: parse, compare, go by it
//	   └───────── not: refused ◀────────┘   what was read before stays
//
// Certificates are read for each connection in any case. Here somebody is told whether
// they can be.

// Reloaded is what reading again brought, a line each.
type Reloaded struct {
	Changed []string // the daemon goes by it from now on
	Restart []string // it takes a restart
	Refused []string // it cannot be used, and of this what was read before stays
	Notes   []string // what people should know beside it
}

// Again reads the file and the certificates again, one caller after the other. An error:
// they cannot be used, and what was read before stays.
func (d *Daemon) Again() (r Reloaded, err error) {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	defer func() {
		if err != nil {
			d.Log.Error("not reloaded; what was read before stays", "error", err)
			return
		}
		d.Log.Info("reloaded", "changed", r.Changed, "restart", r.Restart, "refused", r.Refused)
	}()
	seen, err := d.seenCertificates()
	if err != nil {
		return Reloaded{}, err
	}
	if r, err = d.Reload(); err != nil {
		return Reloaded{}, err
	}
	for i, c := range seen {
		if i < len(d.certificates) && d.certificates[i].digest != c.digest {
			r.Changed = append(r.Changed, fmt.Sprintf("certificate %s, which ends on %s", c.file, c.ends.UTC().Format(time.DateOnly)))
		}
	}
	d.certificates = seen
	return r, nil
}

// AnswerReload is Again for the API.
func (d *Daemon) AnswerReload() (*connect.Response[fairleadv1.ReloadResponse], error) {
	r, err := d.Again()
	if err != nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("not reloaded, and what was read before stays: %w", err))
	}
	return connect.NewResponse(&fairleadv1.ReloadResponse{Changed: r.Changed, Restart: r.Restart, Refused: r.Refused, Notes: r.Notes}), nil
}

// seenCertificate is a file that tls names, as it was read last.
type seenCertificate struct {
	file   string
	digest [sha256.Size]byte
	ends   time.Time
}

// seenCertificates reads the daemon's own certificate and its authority's, and refuses
// those that nobody could talk to it with: halves that belong to two certificates, one
// that is over, or of another authority than the file beside it.
func (d *Daemon) seenCertificates() (all []seenCertificate, err error) {
	if d.TLS == (config.TLS{}) {
		return nil, nil
	}
	if _, err := api.ClientTLS(d.TLS); err != nil { // the authority
		return nil, err
	}
	if err := api.OwnFault(d.TLS, time.Now()); err != nil {
		return nil, err
	}
	for _, file := range []string{d.TLS.Cert, d.TLS.CA} {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("tls: %w; %s", err, certsRemedy)
		}
		ends, err := endOf(file)
		if err != nil {
			return nil, fmt.Errorf("tls: %w; %s", err, certsRemedy)
		}
		all = append(all, seenCertificate{file, sha256.Sum256(bytes.TrimSpace(data)), ends})
	}
	return all, nil
}

// Restarts is a line of Reloaded.Restart, and of status: what has changed in a file.
func Restarts(what, file string) string {
	return fmt.Sprintf("%s changed in %s: restart this daemon to use it (nothing stops meanwhile)", what, file)
}

// Bootstrapped is what of two readings of a machine's file takes a restart whatever the
// daemon's role: whose deployment it is, where its store is, and which certificates.
func Bootstrapped(was, is *config.Config) (restart []string) {
	for _, c := range []struct {
		what    string
		differs bool
	}{
		{"secret", !bytes.Equal(was.SecretBytes(), is.SecretBytes())},
		{"tls", was.TLS != is.TLS},
		{"controllers or store", strings.Join(was.StoreEndpoints(), " ") != strings.Join(is.StoreEndpoints(), " ") || was.Store.Prefix != is.Store.Prefix},
	} {
		if c.differs {
			restart = append(restart, Restarts(c.what, is.File()))
		}
	}
	return restart
}
