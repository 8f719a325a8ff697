package member

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// Status warns of a VIP whose servers all take no new connections.
func TestUnserved(t *testing.T) {
	const (
		standby  = fairleadv1.SlotState_SLOT_STATE_STANDBY
		active   = fairleadv1.SlotState_SLOT_STATE_ACTIVE
		draining = fairleadv1.SlotState_SLOT_STATE_DRAINING
		resting  = fairleadv1.SlotState_SLOT_STATE_RESTING
	)
	for _, c := range []struct {
		states []fairleadv1.SlotState
		want   string
	}{
		{[]fairleadv1.SlotState{draining, active}, ""},
		{[]fairleadv1.SlotState{draining, draining}, "VIP web: no server takes new connections: undrain one"},
		{[]fairleadv1.SlotState{resting, standby}, "VIP web: no server takes new connections: undrain one"},
		{[]fairleadv1.SlotState{resting}, "VIP web: no server takes new connections: add one"},
	} {
		v := &fairleadv1.VIP{Name: "web"}
		for _, s := range c.states {
			v.Slots = append(v.Slots, &fairleadv1.Slot{State: s})
		}
		if got := Unserved(v); got != c.want {
			t.Errorf("%v: %q, want %q", c.states, got, c.want)
		}
		v.Buckets = &fairleadv1.Buckets{}
		if got := Unserved(v); (got == "") != (c.want == "") || strings.Contains(c.want, "undrain") && !strings.Contains(got, "go on taking new connections") {
			t.Errorf("buckets, %v: %q", c.states, got)
		}
	}
}
