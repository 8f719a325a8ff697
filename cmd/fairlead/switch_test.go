package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// Draining the last switch that announces is said.
func TestUnannounced(t *testing.T) {
	sw := func(name string, drained bool) answer {
		return answer{name: name, role: "switch", status: &fairleadv1.GetStatusResponse{Switch: &fairleadv1.Switch{Drained: drained}}}
	}
	silent := answer{name: "sw3", role: "switch", err: errors.New("connection refused")}
	host := answer{name: "s1", role: "host", status: &fairleadv1.GetStatusResponse{}}
	for _, c := range []struct {
		answers []answer
		want    string
	}{
		{[]answer{host, sw("sw1", true), sw("sw2", false)}, ""},
		{[]answer{host, sw("sw1", true), sw("sw2", false), silent}, ""},
		{[]answer{host, sw("sw1", true), sw("sw2", true)}, "no switch announces the VIPs now"},
		{[]answer{host, sw("sw1", true)}, "no switch announces the VIPs now"},
		{[]answer{host, sw("sw1", true), silent}, "sw3 does not answer"},
	} {
		if got := unannounced("sw1", c.answers); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q", c.answers, got, c.want)
		}
	}
}
