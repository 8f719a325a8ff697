package member_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

const holding = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}
balancers:
  - {name: lb1, interfaces: [eth0], l2: {}, api: "https://127.0.0.1:%[2]d", metrics: "127.0.0.1:%[3]d"}
  - {name: lb2, interfaces: [eth0], l2: {}, api: "https://127.0.0.1:%[4]d", metrics: "127.0.0.1:%[5]d"}
servers:
  - {name: s1, address: 10.0.0.21, api: none}
vips:
  - {name: web, address: 192.0.2.10, port: 80, scheme: jet, servers: [s1], health: {type: tcp}}
  - {name: own, address: 192.0.2.11, port: 80, scheme: jet, servers: [s1], announce: never}
controllers: [{name: c1, store: "https://127.0.0.1:2379"}]
`

// One of two balancers holds an address, both say which; it goes to the other when the
// one has no healthy server, and when it is told to stop, which nobody misses.
func TestHolds(t *testing.T) {
	t.Parallel()
	d := membertest.NewOf(t, holding)
	d.Start(config.RoleBalancer, "lb1")
	d.Start(config.RoleBalancer, "lb2")
	web, own := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.11")
	is := func(name string) (held bool, holder, why string) {
		for _, a := range d.Status(name).L2.Addresses {
			if a.Address == web.String() {
				return a.Held, a.Holder, strings.Join(a.Why, "; ")
			}
		}
		t.Fatalf("%s does not know %s", name, web)
		return false, "", ""
	}
	var holder, other string
	d.Eventually("one holds the address", func() bool {
		for _, pair := range [][2]string{{"lb1", "lb2"}, {"lb2", "lb1"}} {
			held, _, _ := is(pair[0])
			otherHeld, has, why := is(pair[1])
			if held && !otherHeld && has == pair[0] && why == pair[0]+" holds it" {
				holder, other = pair[0], pair[1]
				return true
			}
		}
		return false
	})
	if n := d.Ether.Holders(own); n != 0 {
		t.Errorf("%d hold what nobody may", n)
	}
	for name, line := range map[string]string{holder: `fairlead_l2_held{address="192.0.2.10"} 1`, other: `fairlead_l2_held{address="192.0.2.10"} 0`} {
		d.Eventually(name+" "+line, func() bool {
			_, body := d.Get(name, "/metrics")
			return strings.Contains(body, line+"\n")
		})
	}
	down := func(name string, down bool) {
		p := d.Plane(name)
		p.Lock()
		p.Down = down
		p.Unlock()
		select { // as health does
		case p.Wake <- struct{}{}:
		default:
		}
	}
	down(holder, true)
	d.Eventually("the other holds it", func() bool { held, _, _ := is(other); return held })
	if _, _, why := is(holder); why != "no healthy server in VIP web, of 1" {
		t.Errorf("%s says %q", holder, why)
	}
	down(holder, false)
	d.Eventually("it may again", func() bool { _, _, why := is(holder); return why == other+" holds it" || why == "" })

	held, _, _ := is(other)
	stops := other
	if !held { // it moved back
		stops = holder
	}
	ended := make(chan struct{})
	go func() { d.Stops[stops](); close(ended) }()
	for stopping := true; stopping; {
		select {
		case <-ended:
			stopping = false
		default:
		}
		if d.Ether.Holders(web) == 0 {
			t.Fatal("nobody holds the address while one stops")
		}
		time.Sleep(time.Millisecond)
	}
}
