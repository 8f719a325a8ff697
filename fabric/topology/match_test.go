package topology

import (
	"net/netip"
	"testing"
)

func TestLinkOf(t *testing.T) {
	f, err := Parse("f", []byte(`selector: {key: 000102030405060708090a0b0c0d0e0f}
routers: [{name: r}, {name: s, addresses: [10.3.0.1]}]
hosts: [{name: h, addresses: [10.1.0.1, "2001:db8::1"]}]
links:
  - {between: [h, r]}
  - {between: [r, s], ports: [0, 0], addresses: [10.9.0.1, 10.9.0.2]}
  - {between: [r, s], ports: [1, 1], devices: [eth1, none]}
  - {between: [r, s], ports: [2, 2], devices: [lan0, none], addresses: [10.9.1.1, 10.9.1.2]}
  - {between: [r, s], ports: [3, 3], devices: [lan0, none], addresses: [10.9.1.3, 10.9.1.4]}
`))
	if err != nil {
		t.Fatal(err)
	}
	router, _ := f.Find("r")
	for _, c := range []struct {
		device, gateway string
		port            int
		link, numbered  int
	}{
		{"eth7", "10.1.0.1", -1, 0, -1}, // a host on the only link to it, which says nothing
		{"eth7", "2001:db8::1", -1, 0, -1},
		{"eth7", "10.9.0.2", 0, 1, 1},
		{"eth1", "fe80::1", 1, 2, 2},
		{"lan0", "10.9.1.4", 4, 4, -1}, // two links on one device: the address
		{"lan0", "fe80::1", 2, -1, 3},  // nothing but the number tells
		{"eth7", "10.9.1.2", -1, -1, -1},
		{"eth1", "10.9.0.2", 1, 1, 2}, // they contradict
		{"eth7", "10.3.0.1", -1, 1, -1},
		{"eth7", "", -1, -1, -1},
	} {
		gateway, _ := netip.ParseAddr(c.gateway)
		if link, numbered := f.LinkOf(router, c.device, gateway, c.port); link != c.link || numbered != c.numbered {
			t.Errorf("%s by %s, port %d: %d and %d, want %d and %d", c.gateway, c.device, c.port, link, numbered, c.link, c.numbered)
		}
	}
}
