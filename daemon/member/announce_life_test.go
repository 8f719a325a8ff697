package member_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/bgp/bgptest"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

const announcing = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}
bgp: {local_as: 65001, drain_time: 4s}
balancers:
  - name: lb1
    interfaces: [eth0]
    api: "https://127.0.0.1:%[2]d"
    metrics: "127.0.0.1:%[3]d"
    bgp: {router_id: 10.0.0.1, neighbours: [{address: 10.0.0.254, as: 65000}]}
servers:
  - {name: s1, address: 10.0.0.21, api: none}
vips:
  - {name: web, address: 192.0.2.10, port: 80, scheme: jet, servers: [s1], health: {type: tcp}}
  - {name: own, address: 192.0.2.11, port: 80, scheme: jet, servers: [s1], announce: never}
`

// A balancer announces while it is ready and a server is well, says so everywhere, and
// withdraws before it ends: it answers until routers had their time.
func TestAnnounces(t *testing.T) {
	t.Parallel()
	d := membertest.NewOf(t, announcing)
	neighbour := bgp.Neighbour{Address: netip.MustParseAddr("10.0.0.254"), AS: 65000, State: "established", Established: true}
	d.Speaker = bgptest.New(neighbour)
	plane := d.Plane("lb1")
	d.Start(config.RoleBalancer, "lb1")
	told := func(when string, want ...string) {
		t.Helper()
		d.Eventually(when, func() bool {
			is, open := d.Speaker.Told()
			return open && slices.Equal(is, want)
		})
	}
	change := func(f func()) {
		plane.Lock()
		f()
		plane.Unlock()
		select { // as health does
		case plane.Wake <- struct{}{}:
		default:
		}
	}
	metric := func(line string) {
		t.Helper()
		d.Eventually(line, func() bool {
			_, body := d.Get("lb1", "/metrics")
			return strings.Contains(body, line+"\n")
		})
	}
	told("well", "192.0.2.10")
	metric(`fairlead_bgp_announced{address="192.0.2.10"} 1`)
	metric(`fairlead_bgp_announced{address="192.0.2.11"} 0`)
	metric(`fairlead_bgp_neighbour_up{neighbour="10.0.0.254"} 1`)
	is := d.Status("lb1").Bgp
	if len(is.Addresses) != 2 || !slices.Equal(is.Addresses[0].HeardBy, []string{"10.0.0.254"}) || !slices.Equal(is.Addresses[1].Why, []string{"announce: never, says VIP own"}) {
		t.Errorf("status: %+v", is)
	}

	change(func() { plane.Down = true })
	told("no server is well")
	metric(`fairlead_bgp_announced{address="192.0.2.10"} 0`)
	change(func() { plane.Down = false })
	told("well again", "192.0.2.10")
	change(func() { plane.Interfaces = []*fairleadv1.Interface{{Name: "eth0", XdpMode: "off"}} })
	told("nothing would take packets")
	if why := d.Status("lb1").Bgp.Addresses[0].Why; !slices.Equal(why, []string{"lb1 is not ready: interface eth0: the program is not attached"}) {
		t.Errorf("not ready: %q", why)
	}
	change(func() { plane.Interfaces = nil })
	told("ready again", "192.0.2.10")
	neighbour.Established, neighbour.State = false, "active"
	d.Speaker.Change(neighbour)
	metric(`fairlead_bgp_neighbour_up{neighbour="10.0.0.254"} 0`)
	if !d.Warned("lb1", "BGP: neighbour 10.0.0.254 is not established") {
		t.Errorf("no warning of a neighbour that is away: %q", d.Status("lb1").Warnings)
	}

	began, ended := time.Now(), make(chan struct{})
	go func() { d.Stops["lb1"](); close(ended) }()
	told("stopping")
	if status, body := d.Get("lb1", "/ready"); status != http.StatusServiceUnavailable || !strings.Contains(body, "stopping") {
		t.Errorf("/ready while it stops: %d %s", status, body)
	}
	if why := d.Status("lb1").Bgp.Addresses[0].Why; why[0] != "the daemon is stopping" {
		t.Errorf("while it stops: %q", why)
	}
	<-ended
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("ended after %v, drain_time is 4s", took)
	}
	if _, open := d.Speaker.Told(); open {
		t.Error("sessions outlive the daemon")
	}
}
