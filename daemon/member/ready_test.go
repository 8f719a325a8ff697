package member_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

// A daemon whose program is not on an interface is not ready, however long it has
// been at work, and its metrics say so.
func TestDetachedIsNotReady(t *testing.T) {
	d := membertest.New(t)
	d.Start(config.RoleBalancer, "lb1")
	ready := func() (yes bool, why string) {
		status, text := d.Get("lb1", "/ready")
		return status == http.StatusOK, text
	}
	d.Eventually("ready", func() bool { yes, _ := ready(); return yes })
	for _, step := range []struct {
		interfaces []*fairleadv1.Interface
		why, gauge string
	}{
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "generic", EgressMode: "tcx"}}, "", `fairlead_program_attached{interface="eth0"} 1`},
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "off", EgressMode: "tcx"}}, "interface eth0: the program is not attached", `fairlead_program_attached{interface="eth0"} 0`},
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "native", EgressMode: "off"}}, "interface eth0: the program is not attached", `fairlead_program_attached{interface="eth0"} 0`},
		{[]*fairleadv1.Interface{{Name: "eth0", XdpMode: "native"}}, "", `fairlead_program_attached{interface="eth0"} 1`},
	} {
		p := d.Plane("lb1")
		p.Lock()
		p.Interfaces = step.interfaces
		p.Unlock()
		if yes, why := ready(); yes != (step.why == "") || !strings.Contains(why, step.why) {
			t.Errorf("%v: ready %v: %s", step.interfaces, yes, why)
		}
		if _, text := d.Get("lb1", "/metrics"); !strings.Contains(text, step.gauge) {
			t.Errorf("%v: /metrics lacks %s", step.interfaces, step.gauge)
		}
	}
}
