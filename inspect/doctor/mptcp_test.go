package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// What a host of Multipath TCP lacks is said, with the remedy.
func TestMPTCPChecks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	of, err := topology.LeafSpine(2, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range of.Nodes {
		of.Nodes[i].Addresses = append(of.Nodes[i].Addresses, netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)}))
	}
	f, err := fabrics.Up(t.Context(), of, fabrics.Options{Name: fmt.Sprint("kdoctor", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
	})
	host, server := f.Node("host-0"), f.Topology().Nodes[f.Node("host-1")]
	in := func(do func() error) {
		t.Helper()
		if err := f.In("host-0", do); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, name string, s Status, text string) {
		t.Helper()
		var checks []Check
		in(func() error {
			if found := FindHost(f.Topology(), ""); found != host {
				t.Errorf("%s: this is host %d, not %d", when, found, host)
			}
			checks = MPTCP(f.Topology(), host)
			return nil
		})
		if !slices.ContainsFunc(checks, func(c Check) bool {
			return c.Name == name && c.Status == s && strings.Contains(c.Detail+" → "+c.Remedy, text)
		}) {
			t.Errorf("%s: no %s of %q with %q in %+v", when, s, name, text, checks)
		}
	}
	own := "host " + f.Topology().Nodes[host].Name
	expect("at first", own, OK, "all addresses")
	expect("at first", "mptcp", OK, "enabled")
	expect("at first", "path manager", Warn, "takes 2 beside the first → run fairlead mptcp (packaging/fairlead-mptcp.service); on a host that only answers, ip mptcp limits set subflows 8")

	in(func() error { return netspace.Sysctl("net.mptcp.enabled", "0") })
	expect("disabled", "mptcp", Fail, "sysctl -w net.mptcp.enabled=1")
	in(func() error { return netspace.Sysctl("net.mptcp.enabled", "1") })

	in(func() error { return netspace.Sysctl("net.mptcp.pm_type", "1") })
	expect("with a daemon", "path manager", OK, "programs'")
	expect("with a daemon", "subflows", OK, "no connection")
	joinServer(t, f, server.Addresses[0])
	expect("with a connection", "subflows", Warn, "has 1, of 3 disjoint paths; so it is with 1 connections of this host → unless --subflows")

	nodes := f.Topology().Nodes
	nodes[host].Addresses = append(nodes[host].Addresses, netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("fd77::7"))
	expect("with addresses that are not there", own, Fail, "does not have 192.0.2.7, fd77::7")
	nodes[host].Addresses = slices.DeleteFunc(nodes[host].Addresses, func(a netip.Addr) bool {
		return a == netip.MustParseAddr("192.0.2.7") || a == netip.MustParseAddr("fd77::7")
	})
	f.Topology().Selector.IPv6 = pathsel.FlowLabel
	expect("with flow labels", own, Warn, "take ports or source-port for IPv6")

	if found := FindHost(f.Topology(), server.Name); found != f.Node("host-1") || FindHost(f.Topology(), "nobody") != -1 {
		t.Errorf("by name: %d", found)
	}
}

// joinServer opens a connection of Multipath TCP from host-0 to an address of
// host-1 for as long as the test lasts.
func joinServer(t *testing.T, f *fabrics.Fabric, to netip.Addr) {
	t.Helper()
	var l net.Listener
	err := f.In("host-1", func() (err error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(true)
		l, err = lc.Listen(t.Context(), "tcp", netip.AddrPortFrom(to, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	err = f.In("host-0", func() error {
		var d net.Dialer
		d.SetMultipathTCP(true)
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}
