package member

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// Who counts as a server that takes new connections, and as a healthy one.
func TestNode(t *testing.T) {
	const (
		active   = fairleadv1.SlotState_SLOT_STATE_ACTIVE
		draining = fairleadv1.SlotState_SLOT_STATE_DRAINING
		up       = fairleadv1.Health_HEALTH_UP
		unknown  = fairleadv1.Health_HEALTH_UNKNOWN
		down     = fairleadv1.Health_HEALTH_DOWN
	)
	a := &controller.Assignment{VIPs: []controller.VIP{{Settings: vip.Settings{Name: "web", Address: netip.MustParseAddr("192.0.2.1"),
		Announce: vip.AnnounceAlways, Communities: []string{"65001:1"}, MED: 3}}}}
	for what, c := range map[string]struct {
		slot             *fairleadv1.Slot
		locked           bool
		servers, healthy int
	}{
		"up":                               {&fairleadv1.Slot{State: active, Health: up, TakesNew: true}, false, 1, 1},
		"without a check":                  {&fairleadv1.Slot{State: active, TakesNew: true}, false, 1, 1},
		"nobody knows yet":                 {&fairleadv1.Slot{State: active, Health: unknown, TakesNew: true}, false, 1, 1},
		"warms up":                         {&fairleadv1.Slot{State: active, Health: up}, false, 1, 1},
		"down":                             {&fairleadv1.Slot{State: active, Health: down}, false, 1, 0},
		"down, and all are: all are used":  {&fairleadv1.Slot{State: active, Health: down, TakesNew: true}, false, 1, 0},
		"down for a switch that is locked": {&fairleadv1.Slot{State: active, Health: down, TakesNew: true}, true, 1, 1},
		"drains":                           {&fairleadv1.Slot{State: draining, Health: up}, false, 0, 0},
		"drains, and all do, with buckets": {&fairleadv1.Slot{State: draining, Health: up, TakesNew: true}, false, 1, 1},
	} {
		s := &fairleadv1.GetStatusResponse{Name: "lb1", NotReady: []string{"it starts"}, Vips: []*fairleadv1.VIP{{Name: "web", Slots: []*fairleadv1.Slot{c.slot}}, {Name: "gone"}}}
		if c.locked {
			s.Switch = &fairleadv1.Switch{Locked: true}
		}
		n := node(a, s)
		if n.Name != "lb1" || len(n.NotReady) != 1 || len(n.VIPs) != 1 {
			t.Fatalf("%s: %+v", what, n)
		}
		v := n.VIPs[0]
		if v.Servers != c.servers || v.Healthy != c.healthy || v.Announce != vip.AnnounceAlways || len(v.Communities) != 1 || v.MED != 3 {
			t.Errorf("%s: %+v, want %d healthy of %d", what, v, c.healthy, c.servers)
		}
	}
}

// What of bgp changes in the file is told to take a restart, at daemons that announce.
func TestBGPTakesRestart(t *testing.T) {
	speaker := func(as int) config.Self {
		return config.Self{Balancer: &config.Balancer{BGP: &config.Speaker{Neighbours: []config.Neighbour{{AS: as}}}}}
	}
	med := func(n int) *config.Config { return &config.Config{BGP: config.BGP{MED: n}} }
	is := bgpSetting(med(1), speaker(2))
	for what, c := range map[string]struct {
		now     Setting
		changed bool
	}{
		"nothing":        {bgpSetting(med(1), speaker(2)), false},
		"the common":     {bgpSetting(med(2), speaker(2)), true},
		"its own":        {bgpSetting(med(1), speaker(3)), true},
		"it has no more": {bgpSetting(med(1), config.Self{Balancer: &config.Balancer{}}), true},
	} {
		if changed := !reflect.DeepEqual(is, c.now); changed != c.changed {
			t.Errorf("%s: changed %t", what, changed)
		}
	}
	silent := config.Self{Server: &config.Server{}}
	if !reflect.DeepEqual(bgpSetting(med(1), silent), bgpSetting(med(2), silent)) {
		t.Error("an agent is told to restart for bgp")
	}
}
