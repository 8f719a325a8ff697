package router_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics/fabricstest"
	"github.com/fairlead/fairlead/lab/netspace"
)

// TestRouter has packets choose their path through namespaces, and whatever can
// happen to a router happen, one after the other.
func TestRouter(t *testing.T) {
	r := newRouterRig(t, "router")
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"select", r.selects}, {"traceroute", r.traceroute}, {"link lost", r.linkLost}, {"next hops", r.nextHops},
		{"vlan", r.vlan}, {"kernel", r.leftToKernel}, {"rules", r.rules}, {"metrics", r.metrics}, {"reload", r.reload}, {"killed", r.killed},
	} {
		if !r.sub(t, step.name, step.do) {
			return
		}
	}
}

// sub runs a part of a test, in which the rig fails that part.
func (r *routerRig) sub(t *testing.T, name string, do func(*testing.T)) bool {
	outer := r.t
	defer func() { r.t = outer }()
	return t.Run(name, func(t *testing.T) { r.t = t; do(t) })
}

// eachFamily runs a step for IPv4 and IPv6.
func (r *routerRig) eachFamily(t *testing.T, do func(t *testing.T, six bool)) {
	r.sub(t, "IPv4", func(t *testing.T) { do(t, false) })
	r.sub(t, "IPv6", func(t *testing.T) { do(t, true) })
}

// selects: flows go by the port that they name; digit 3 names none of the
// three and is hashed.
func (r *routerRig) selects(t *testing.T) {
	r.eachFamily(t, func(t *testing.T, six bool) {
		const n = 20
		for port := range 3 {
			before := r.hop(six, port)
			if !r.send(six, port, n) {
				t.Fatalf("port %d: not all of %d flows arrive", port, n)
			}
			if got := r.hop(six, port).Selected - before.Selected; got != n {
				t.Errorf("port %d: %d of %d flows went by it", port, got, n)
			}
		}
		before := r.status().Router.Hashed
		if !r.send(six, 3, n) {
			t.Fatalf("flows that select no port: not all of %d arrive", n)
		}
		if got := r.status().Router.Hashed - before; got != n {
			t.Errorf("flows that select no port: %d of %d were hashed", got, n)
		}
	})
}

// traceroute: every router on the path answers, the spine being the one that
// was selected.
func (r *routerRig) traceroute(t *testing.T) {
	r.eachFamily(t, func(t *testing.T, six bool) {
		for port, spine := range []string{"spine-0", "spine-1", "spine-2"} {
			got := r.trace(six, port)
			want := []string{"leaf-0", spine, "leaf-1"}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("port %d: path %q, want %q", port, got, want)
			}
		}
	})
}

// linkLost: flows of the lost link fall to the hash, those of others stay; it
// has its number back when it comes back.
func (r *routerRig) linkLost(t *testing.T) {
	link := r.Link("leaf-0", "spine-1", 0)
	if err := r.Cut(link); err != nil {
		t.Fatal(err)
	}
	for _, six := range []bool{false, true} {
		// Its neighbour may be forgotten before its routes are, and what selects
		// it is left to the kernel until then.
		r.until("hop is lost", func() bool {
			h := r.hop(six, 1)
			return !h.Usable && !strings.Contains(h.Why, "left to the kernel")
		})
	}
	r.eachFamily(t, func(t *testing.T, six bool) {
		const n = 20
		before, lost := r.status().Router, r.hop(six, 1)
		if !r.send(six, 1, n) || !r.send(six, 0, n) || !r.send(six, 2, n) {
			t.Fatal("not all flows arrive")
		}
		after := r.status().Router
		if gone, selected := after.Gone-before.Gone, after.Selected-before.Selected; gone != n || selected != 2*n {
			t.Errorf("gone %d, want %d; selected %d, want %d; before %v, after %v", gone, n, selected, 2*n, before, after)
		}
		if is := r.hop(six, 1); is.Bytes != lost.Bytes {
			t.Errorf("the lost hop got %d bytes", is.Bytes-lost.Bytes)
		}
	})
	if err := r.Restore(link); err != nil {
		t.Fatal(err)
	}
	if err := r.Reroute(); err != nil {
		t.Fatal(err)
	}
	for _, six := range []bool{false, true} {
		r.until("hop is back", func() bool { return r.hop(six, 1).Usable && len(r.route(r.to[six]).Members) == 3 })
		before := r.hop(six, 1).Selected
		if !r.send(six, 1, 5) || r.hop(six, 1).Selected != before+5 {
			t.Errorf("IPv6 %v: flows do not go by the link that came back", six)
		}
	}
}

// nextHops: a route loses and gets next hops, as a multipath route and as a
// nexthop group with weights.
func (r *routerRig) nextHops(t *testing.T) {
	to := r.to[false]
	var hops [3][]string
	for n := range hops {
		device, gateway := r.spine(false, n)
		hops[n] = []string{"via", gateway, "dev", device}
	}
	r.ip("leaf-0", append([]string{"route", "replace", to.String()}, hops[2]...)...)
	r.until("one next hop", func() bool { return len(r.route(to).Members) == 1 })
	before := r.hop(false, 2).Single
	if !r.send(false, 0, 10) {
		t.Fatal("not all flows arrive over the only next hop")
	}
	if got := r.hop(false, 2).Single - before; got != 10 {
		t.Errorf("only next hop: single %d, want 10", got)
	}
	for n, id := range []string{"101", "102", "103"} {
		r.ip("leaf-0", append([]string{"nexthop", "replace", "id", id}, hops[n]...)...)
	}
	r.ip("leaf-0", "nexthop", "replace", "id", "110", "group", "101,3/102,2")
	r.ip("leaf-0", "route", "replace", to.String(), "nhid", "110")
	r.until("a group of two", func() bool {
		m := r.route(to).Members
		return len(m) == 2 && m[0].Port == 0 && m[0].Weight == 3 && m[1].Port == 1 && m[1].Weight == 2
	})
	selected, gone := r.hop(false, 1).Selected, r.status().Router.Gone
	if !r.send(false, 1, 10) || r.hop(false, 1).Selected != selected+10 {
		t.Error("flows do not go by the group's member that they select")
	}
	if !r.send(false, 2, 10) || r.status().Router.Gone != gone+10 {
		t.Error("flows that select a port which is not in the group are not counted as gone")
	}
	r.ip("leaf-0", "nexthop", "add", "id", "111", "group", "101/102/103", "type", "resilient", "buckets", "32")
	r.ip("leaf-0", "route", "replace", to.String(), "nhid", "111")
	r.until("a resilient group of three", func() bool { return len(r.route(to).Members) == 3 })
	if err := r.Reroute(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"110", "111", "101", "102", "103"} {
		r.ip("leaf-0", "nexthop", "del", "id", id)
	}
	r.until("routes are as they were", func() bool { return len(r.route(to).Members) == 3 && r.route(to).Members[0].Weight == 1 })
}

// vlan: a next hop on a VLAN device.
func (r *routerRig) vlan(t *testing.T) {
	device, _ := r.spine(false, 0)
	_, err := fabricstest.Run(t.Context(), r.Fabric, "leaf-0", "ip", "link", "add", "link", device, "name", "v100", "type", "vlan", "id", "100")
	if err != nil && strings.Contains(err.Error(), "Unknown device type") {
		t.Skip("this kernel has no VLAN devices (CONFIG_VLAN_8021Q)")
	}
	if err != nil {
		t.Fatal(err)
	}
	link := r.Topology().Links[r.Link("leaf-0", "spine-0", 0)]
	other := link.Ends[1].Device
	if link.Ends[0].Device != device {
		other = link.Ends[0].Device
	}
	r.ip("spine-0", "link", "add", "link", other, "name", "v100", "type", "vlan", "id", "100")
	for _, end := range []struct{ node, address string }{{"leaf-0", "10.99.0.1/30"}, {"spine-0", "10.99.0.2/30"}} {
		r.ip(end.node, "addr", "add", end.address, "dev", "v100")
		r.ip(end.node, "link", "set", "v100", "up")
	}
	to := r.to[false]
	r.ip("leaf-0", "route", "replace", to.String(), "via", "10.99.0.2", "dev", "v100")
	r.until("the route leads over the VLAN", func() bool {
		m := r.route(to).Members
		return len(m) == 1 && m[0].Interface == "v100" && m[0].Usable
	})
	if !r.send(false, 1, 10) {
		t.Fatal("not all flows arrive over the VLAN")
	}
	for _, h := range r.status().Router.Hops {
		if h.Interface == "v100" && (h.Vlan != 100 || h.Single != 10) {
			t.Errorf("10 packets were sent into the VLAN, but %v", h)
		}
	}
	if err := r.Reroute(); err != nil {
		t.Fatal(err)
	}
	r.ip("leaf-0", "link", "del", "v100")
	r.until("the route is as it was", func() bool { return len(r.route(to).Members) == 3 })
}

// leftToKernel: what the program does not do, the kernel does.
func (r *routerRig) leftToKernel(t *testing.T) {
	r.ip("leaf-0", "route", "add", "unreachable", "192.0.2.0/24")
	r.ip("leaf-0", "link", "add", "d0", "type", "bridge")
	r.ip("leaf-0", "link", "set", "d0", "up")
	r.ip("leaf-0", "route", "add", "198.51.100.0/24", "dev", "d0")
	for _, one := range []struct{ to, kind, reason string }{
		{"192.0.2.1", "unreachable", "unreachable"}, {"198.51.100.1", "beyond", "beyond"}, {"203.0.113.1", "", "no_route"},
	} {
		to := netip.MustParseAddr(one.to)
		r.until(one.to, func() bool { return r.route(to).Kind == one.kind })
		before := r.reason(one.reason)
		r.knock(one.to)
		r.until("counted as "+one.reason, func() bool { return r.reason(one.reason) > before })
	}
	r.ip("leaf-0", "link", "del", "d0")
	r.ip("leaf-0", "route", "del", "unreachable", "192.0.2.0/24")
}

// knock sends a datagram to an address that does not take it.
func (r *routerRig) knock(to string) {
	r.t.Helper()
	err := r.In("host-0", func() error {
		c, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("knock"))
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// rules: with a rule of its own the kernel routes alone, and no router starts.
func (r *routerRig) rules(t *testing.T) {
	r.ip("leaf-0", "rule", "add", "from", "10.0.0.0/8", "table", "42")
	r.until("said", func() bool { return contains(r.status().Warnings, "delete it") })
	before := r.status().Router.Selected
	if !r.send(false, 1, 5) {
		t.Fatal("not all flows arrive by the kernel")
	}
	if got := r.status().Router.Selected; got != before {
		t.Errorf("%d flows went by the program in spite of the rule", got-before)
	}
	name := r.Topology().Nodes[r.Node("leaf-0")].Name
	out, err := fabricstest.Run(t.Context(), r.Fabric, "leaf-0", r.program, "router", "-f", r.Path(), "--name", name, "--state-dir", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "another daemon listens") {
		t.Errorf("a second daemon of the same name starts: %v %s", err, out)
	}
	r.ip("leaf-0", "rule", "del", "from", "10.0.0.0/8", "table", "42")
	r.until("the program forwards again", func() bool { return len(r.route(r.to[false]).Members) == 3 })
}

// metrics say the same as the status.
func (r *routerRig) metrics(t *testing.T) {
	page, err := fabricstest.Run(t.Context(), r.Fabric, "leaf-0", "curl", "-sS", "http://"+routerMetrics+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	h := r.hop(true, 1)
	for _, want := range []string{
		fmt.Sprintf(`fairlead_router_packets_total{gateway="%s",how="selected",interface="%s",port="1"} %d`, h.Gateway, h.Interface, h.Selected),
		fmt.Sprintf(`fairlead_router_next_hop_usable{gateway="%s",interface="%s",port="1"} 1`, h.Gateway, h.Interface),
		`fairlead_packets_total{reason="unreachable"}`, `fairlead_build_info{`, `role="router"`, `fairlead_router_error 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	if ready, err := fabricstest.Run(t.Context(), r.Fabric, "leaf-0", "curl", "-sS", "http://"+routerMetrics+"/ready"); err != nil || ready != "ready\n" {
		t.Errorf("ready says %q: %v", ready, err)
	}
}

// reload: SIGHUP takes other port numbers over, and says what takes a restart.
func (r *routerRig) reload(t *testing.T) {
	before := r.hop(false, 0)
	f := *r.Topology()
	f.Links = slices.Clone(f.Links)
	leaf := r.Node("leaf-0")
	for i := range f.Links {
		for side := range f.Links[i].Ends {
			if e := &f.Links[i].Ends[side]; e.Node == leaf && e.Port >= 0 {
				e.Port = (e.Port + 1) % 3
			}
		}
	}
	rewrite := func(f *topology.Fabric) {
		t.Helper()
		var text bytes.Buffer
		err := topology.Write(&text, f)
		if err == nil {
			err = os.WriteFile(r.Path(), text.Bytes(), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range netspace.Processes(r.Namespace("leaf-0")) {
			if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
		}
	}
	rewrite(&f)
	r.until("other numbers are in force", func() bool { return r.hop(false, 1).Interface == before.Interface })
	selected := r.hop(false, 1).Selected
	if !r.send(false, 1, 5) || r.hop(false, 1).Selected != selected+5 {
		t.Error("flows do not go by the new numbers")
	}
	f.Selector.Key[0]++
	rewrite(&f)
	r.until("a restart is asked for", func() bool { return contains(r.status().Warnings, "restart it") })
	rewrite(r.Topology())
	r.until("all is as it was", func() bool { return r.hop(false, 0).Interface == before.Interface && len(r.status().Warnings) == 0 })
}

// killed: packets go on while the daemon is dead, and the next one goes on
// counting.
func (r *routerRig) killed(t *testing.T) {
	before := r.hop(false, 2).Selected
	if err := netspace.Kill(r.Namespace("leaf-0")); err != nil {
		t.Fatal(err)
	}
	if !r.send(false, 2, 10) {
		t.Fatal("not all flows arrive while the daemon is dead")
	}
	p, err := r.StartRouter("leaf-0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.AwaitRouter(t.Context(), "leaf-0", p); err != nil {
		t.Fatal(err)
	}
	r.look()
	if s := r.status(); !s.Adopted {
		t.Error("what was pinned was not adopted")
	}
	if got := r.hop(false, 2).Selected - before; got != 10 {
		t.Errorf("%d of 10 packets were counted while the daemon was dead", got)
	}
	name := r.Topology().Nodes[r.Node("leaf-0")].Name
	p.Stop()
	r.ip("leaf-0", "rule", "add", "from", "10.0.0.0/8", "table", "42")
	if out, err := fabricstest.Run(t.Context(), r.Fabric, "leaf-0", r.program, "router", "-f", r.Path(), "--name", name, "--state-dir", t.TempDir()); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a router starts in spite of a rule: %v %s", err, out)
	}
	if out, err := exec.Command(r.program, "unload", name).CombinedOutput(); err != nil {
		t.Fatalf("unload: %v: %s", err, out)
	}
	if out, err := fabricstest.Run(t.Context(), r.Fabric, "leaf-0", "ip", "-o", "link"); err != nil || strings.Contains(out, "xdp") {
		t.Errorf("unloaded, but: %s %v", out, err)
	}
	if !r.send(false, 2, 5) {
		t.Error("not all flows arrive by the kernel alone")
	}
}
