package lb

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/kernel/lb"
)

// Entries that are refused are warned of while it is news: not those of
// before the daemon began, and not for ever.
func TestFlowTableFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w flowWatch
		status := func() string {
			s := &fairleadv1.GetStatusResponse{Vips: []*fairleadv1.VIP{{Id: 1, Name: "web"}, {Id: 2, Name: "dns"}}}
			w.describe(s)
			return strings.Join(s.Warnings, "\n")
		}
		count := func(web, dns uint64) {
			w.count([]lb.VIPCounters{{ID: 1, FlowFull: web}, {ID: 2, FlowFull: dns}}, time.Now())
			time.Sleep(sweepInterval)
		}
		w.sweep(lb.FlowStats{Used: 700, Confirmed: 350, Limit: 700}) // full, but half of it gives way
		count(1000, 0)
		count(1000, 0)
		if text := status(); text != "" {
			t.Errorf("nothing was refused since, but: %s", text)
		}
		count(1002, 0)
		count(1007, 0)
		text := status()
		if !strings.Contains(text, "VIP web: the flow table refused an entry 7 times") || !strings.Contains(text, "raise limits.flows") || strings.Contains(text, "dns") {
			t.Errorf("after 7 refusals: %q", text)
		}
		for range fullShown / sweepInterval {
			count(1007, 0)
		}
		if text := status(); text != "" {
			t.Errorf("%v after the last refusal: %s", fullShown, text)
		}
		w.sweep(lb.FlowStats{Used: 400, Confirmed: 351, Limit: 700})
		if text := status(); !strings.Contains(text, "live connections hold 351 of 700 places") {
			t.Errorf("half of the places are held: %q", text)
		}
	})
}
