package lb

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// The metrics keep to Prometheus's conventions, and show what status shows.
func TestMetrics(t *testing.T) {
	d, _, _ := newWithFlows(t)
	d.start("lb1")
	_, text := d.Get("lb1", "/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "fairlead_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, want := range []string{
		`fairlead_assignment_version 1`,
		`fairlead_packets_total{reason="pass_no_vip"} 3`,
		`fairlead_server_state{server="s1",slot="0",state="active",vip="web"} 1`,
		`fairlead_server_up{server="s2",slot="1",vip="web"} 1`,
		`process_start_time_seconds`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	// lb2 is not there, and not waited for.
	d.Eventually("/ready says yes", func() bool { status, _ := d.Get("lb1", "/ready"); return status == http.StatusOK })
}
