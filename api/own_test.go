package api

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/config"
)

// machine is what `fairlead certs` made for who answers at endpoint.
func machine(t *testing.T, folder, name, endpoint string) config.TLS {
	t.Helper()
	a, err := certs.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(certs.Subject{Name: name, Endpoints: []string{endpoint}}); err != nil {
		t.Fatal(err)
	}
	at := func(file string) string { return filepath.Join(folder, name, file) }
	return config.TLS{CA: at("ca.pem"), Cert: at("cert.pem"), Key: at("key.pem")}
}

// TestOwn: a certificate that is over, of another deployment or of another machine is
// said to be so, with its file and what to do.
func TestOwn(t *testing.T) {
	folder := t.TempDir()
	lb1 := machine(t, folder, "lb1", "https://10.0.0.11:7471")
	now := time.Now()
	ends, err := OwnEnds(lb1)
	if err != nil || OwnFault(lb1, now) != nil || OwnFault(config.TLS{}, now) != nil {
		t.Fatal(err, OwnFault(lb1, now))
	}
	foreign := lb1
	foreign.CA = machine(t, t.TempDir(), "lb1", "https://10.0.0.11:7471").CA
	halves := lb1
	halves.Key = machine(t, folder, "s1", "https://10.0.0.21:7471").Key
	for _, of := range []struct {
		t    config.TLS
		at   time.Time
		says string
	}{
		{lb1, ends.Add(time.Hour), "ended on " + ends.UTC().Format(time.DateTime)},
		{lb1, ends.Add(time.Hour), "certs FOLDER --renew"},
		{lb1, now.Add(-2 * time.Hour), "put the clock right"},
		{foreign, now, "is not of the authority " + foreign.CA},
		{halves, now, "tls.cert and tls.key"},
	} {
		if err := OwnFault(of.t, of.at); err == nil || !errors.Is(err, ErrOwn) || !strings.Contains(err.Error(), of.says) || !strings.Contains(err.Error(), "tls.") && !strings.Contains(err.Error(), of.t.Cert) {
			t.Errorf("%v, not %q", err, of.says)
		}
	}
	for endpoint, names := range map[string]bool{"https://10.0.0.11:7471": true, "https://10.0.0.11:7471/": true, "https://10.0.0.12:7471": false, "https://lb1:7471": true,
		"https://s1:7471": false, "unix:/run/fairlead/x.sock": true, "https://0.0.0.0:7471": true} {
		if err := OwnNames(lb1, endpoint); (err == nil) != names || err != nil && !strings.Contains(err.Error(), "is of lb1 (10.0.0.11") {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
}
