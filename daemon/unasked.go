package daemon

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// unaskedWarning says that checks could not be made here, "" if all could:
// their servers' states are what was known before.
func (b *balancer) unaskedWarning() string {
	_, targets, cause := b.checks.Unasked()
	if targets == 0 {
		return ""
	}
	return fmt.Sprintf("%d health checks could not be made, for a reason of this machine (%s): what was known of these servers stays; "+
		"see its open files (LimitNOFILE), memory, ports and packet filter", targets, cause)
}

// unaskedCounter is the metric of the same. The plane is there once metrics are
// served.
func (d *daemon) unaskedCounter() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "fairlead_health_checks_unasked_total",
		Help: "Health checks that this machine could not make (no descriptor, memory or port, a packet filter's rule): they say nothing of a server."},
		func() float64 {
			if b, ok := d.plane.(*balancer); ok {
				checks, _, _ := b.checks.Unasked()
				return float64(checks)
			}
			return 0
		})
}
