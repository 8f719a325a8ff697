package daemon

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/config"
)

// expirySoon is how long before a certificate's end status warns of it.
const expirySoon = 30 * 24 * time.Hour

var mExpiry = Gauge("certificate_expiry_timestamp_seconds",
	"When the certificate ends, in seconds since 1970: the daemon's own, or the first of its authority's (authority). Until it is renewed, nobody talks to this daemon from then on.", "certificate")

// ends is when the daemon's own certificate and its authority's end, as the files are
// now; there are none without TLS.
func ends(t config.TLS) (all []end, err error) {
	if t == (config.TLS{}) {
		return nil, nil
	}
	for _, of := range []struct{ what, file string }{{"own", t.Cert}, {"authority", t.CA}} {
		at, err := endOf(of.file)
		if err != nil {
			return nil, err
		}
		all = append(all, end{of.what, of.file, at})
	}
	return all, nil
}

type end struct {
	what, file string
	at         time.Time
}

// endOf is when the first certificate of a PEM file ends.
func endOf(file string) (time.Time, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", file, err)
	}
	return c.NotAfter, nil
}

// expiryCollector exports when certificates end.
func (d *Daemon) expiryCollector() prometheus.Collector {
	return Collector([]Metric{mExpiry}, func(emit Emitter) error {
		all, err := ends(d.TLS)
		if err != nil {
			return nil // the API says so, at every handshake; the other metrics stand
		}
		for _, e := range all {
			emit(mExpiry, float64(e.at.Unix()), e.what)
		}
		return nil
	})
}

// expiryWarnings are of certificates that end soon, that cannot be read, or that nobody
// takes of this daemon.
func (d *Daemon) expiryWarnings(now time.Time) (warnings []string) {
	all, err := ends(d.TLS)
	if err != nil {
		return []string{fmt.Sprintf("certificates cannot be read: %v; until they can, nobody new talks to this daemon", err)}
	}
	for _, e := range all {
		remedy := "`fairlead certs --renew`, and copy the new one there"
		if e.what == "authority" {
			remedy = "make a new authority with `fairlead certs`, and give all machines theirs"
		}
		switch left := e.at.Sub(now); {
		case left <= 0:
			warnings = append(warnings, fmt.Sprintf("certificate %s has ended on %s: nobody talks to this daemon; %s", e.file, e.at.UTC().Format(time.DateOnly), remedy))
		case left < expirySoon:
			warnings = append(warnings, fmt.Sprintf("certificate %s ends in %d days, on %s; %s", e.file, int(left.Hours()/24), e.at.UTC().Format(time.DateOnly), remedy))
		}
	}
	if len(warnings) == 0 { // else that is why
		if err := api.OwnFault(d.TLS, now); err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	for _, at := range d.API {
		if err := api.OwnNames(d.TLS, at); err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	return warnings
}
