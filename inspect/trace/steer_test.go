package trace

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/vip"
)

// A steered packet's story tells its part, and the port that was chosen for it.
func TestSteeredStory(t *testing.T) {
	a := *testAssignment
	v := testVIP(40, "steered", "192.0.2.40", "tcp", "gue", "10.78.0.11")
	v.Steer = vip.SteerConnection
	a.VIPs = []controller.VIP{v}
	pinDir, balancer := loadedWith(t, &a, func(o *lb.Options) {
		o.Steer, o.Source4, o.Source6 = true, netip.MustParsePrefix("10.88.0.1/32"), netip.MustParsePrefix("fd88::1/128")
	})
	var row steer.Row
	for i := range row {
		if i%2 == 0 { // the others go by the hash
			row[i].Port = uint16(2000 + i)
		}
	}
	key := lb.SteerKey{Server: netip.MustParseAddr("10.78.0.11"), By: vip.SteerConnection}
	if err := balancer.SetSteers(map[lb.SteerKey]steer.Row{key: row}); err != nil {
		t.Fatal(err)
	}
	tracer, err := Open(pinDir, &a)
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	chosen, byHash := 0, 0
	for _, port := range strings.Fields("1024 1025 1026 1027 1028 1029 1030 1031 1032 1033 1034 1035") {
		s := tracer.must(t, "tcp 203.0.113.7:"+port+" > 192.0.2.40:80 syn")
		switch steer := s.Server.Steer; {
		case steer == nil:
			t.Fatalf("%+v: not steered", s.Server)
		case steer.ByHash != (steer.Part%2 == 1):
			t.Errorf("part %d: by hash %v", steer.Part, steer.ByHash)
		case steer.ByHash:
			if byHash++; s.Outer.Port < 49152 {
				t.Errorf("by hash, source port %d", s.Outer.Port)
			}
		default:
			if chosen++; s.Outer.Port != uint16(2000+steer.Part) {
				t.Errorf("part %d has source port %d", steer.Part, s.Outer.Port)
			}
		}
	}
	if chosen == 0 || byHash == 0 {
		t.Errorf("%d chosen, %d by hash: too few connections", chosen, byHash)
	}
}
