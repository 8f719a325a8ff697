package daemon

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/daemontest"
)

// TestExpiry: when certificates end is a metric, and from 30 days before a warning.
func TestExpiry(t *testing.T) {
	d := &Daemon{}
	if n := testutil.CollectAndCount(d.expiryCollector()); n != 0 || len(d.expiryWarnings(time.Now())) != 0 {
		t.Errorf("without TLS: %d values", n)
	}
	d.TLS = daemontest.Certificates(t, t.TempDir(), net.IPv4(127, 0, 0, 1))
	at, err := endOf(d.TLS.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(d.expiryCollector()); n != 2 {
		t.Errorf("%d values, want 2", n)
	}
	for before, says := range map[time.Duration]string{expirySoon + time.Hour: "", expirySoon - time.Hour: "ends in 29 days", -time.Hour: "has ended on"} {
		warnings := d.expiryWarnings(at.Add(-before))
		if len(warnings) != map[bool]int{true: 0, false: 2}[says == ""] || says != "" && !strings.Contains(warnings[0], says) {
			t.Errorf("%s before: %q", before, warnings)
		}
	}
	d.API = []string{"https://127.0.0.1:1", "https://127.0.0.2:1"}
	if w := d.expiryWarnings(time.Now()); len(w) != 1 || !strings.Contains(w[0], "does not name 127.0.0.2") {
		t.Errorf("at another address: %q", w)
	}
	d.API = nil
	foreign := d.TLS
	foreign.CA = daemontest.Certificates(t, t.TempDir(), net.IPv4(127, 0, 0, 1)).CA
	d.TLS = foreign
	if w := d.expiryWarnings(time.Now()); len(w) != 1 || !strings.Contains(w[0], "is not of the authority") {
		t.Errorf("of another authority: %q", w)
	}
	d.TLS = config.TLS{CA: "/nowhere", Cert: "/nowhere", Key: "/nowhere"}
	if w := d.expiryWarnings(time.Now()); len(w) != 1 || !strings.Contains(w[0], "cannot be read") {
		t.Errorf("%q", w)
	}
}
