package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/scheme/faild"
)

func switchConfig(t *testing.T, buckets int) *config.Config {
	t.Helper()
	cfg, err := config.Parse("fairlead.yaml", fmt.Appendf(nil, `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
servers:
  - {name: s1, address: 10.2.0.1, api: "unix:/run/fairlead/s1.sock"}
  - {name: s2, address: 10.2.0.2, api: "unix:/run/fairlead/s2.sock"}
switches:
  - {name: sw1, ports: {s1: p1, s2: p2}, api: "unix:/run/fairlead/sw1.sock"}
vips:
  - {name: web, address: 192.0.2.10, port: 80, scheme: faild, buckets: %d, servers: [s1, s2]}
  - {name: six, address: "2001:db8::10", port: 80, scheme: faild, buckets: %d, servers: [s1, s2]}
`, buckets, buckets))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// What is wrong with a machine that shall be a switch is said with its
// remedy, and the remedy mends it.
func TestSwitchChecks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	cfg := switchConfig(t, 64)
	a, err := controller.First(cfg)
	if err != nil {
		t.Fatal(err)
	}
	seed := faild.Seed(a.HashKey)
	var hash []string
	for _, s := range swtch.Settings(seed) {
		hash = append(hash, s.Name+"="+s.Value)
	}
	ns, err := hosttest.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	run := func(script string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := ns.Do(cmd.Run); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out.String())
		}
	}
	look := func(cfg *config.Config) []Check {
		r := &report{}
		if err := ns.Do(func() error { r.switches(cfg, &cfg.Switches[0]); return nil }); err != nil {
			t.Fatal(err)
		}
		return r.checks
	}
	// wants says how a check of that name comes out, and what its lines name.
	wants := func(about string, checks []Check, name string, status Status, texts ...string) {
		t.Helper()
		for _, c := range checks {
			if c.Name != name {
				continue
			}
			if c.Status != status || (status == OK) != (c.Remedy == "") {
				t.Errorf("%s: %+v, want %s", about, c, status)
			}
			for _, text := range texts {
				if !strings.Contains(c.Detail+" → "+c.Remedy, text) {
					t.Errorf("%s: %+v does not say %q", about, c, text)
				}
			}
			return
		}
		t.Errorf("%s: nothing of %s: %+v", about, name, checks)
	}

	run("ip link set lo up")
	checks := look(cfg)
	wants("nothing is there", checks, "bridge br0", Fail, "does not exist", "ip link add br0 type bridge")
	wants("nothing is there", checks, "hash", Fail, append(hash, "sysctl -w ")...)
	wants("nothing is there", checks, "forwarding", Fail, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	wants("nothing is there", checks, "nexthops", OK, "64 for 2 servers")

	run("ip link add br0 type bridge forward_delay 0; ip link set br0 up")
	wants("no port", look(cfg), "ports", Fail, "p1 (of s1), p2 (of s2)")
	run(`for i in 1 2; do ip link add p$i type veth peer name far$i; ip link set far$i up; ip link set p$i up; done; ip link set p1 master br0
until bridge link show dev p1 | grep -q state.forwarding; do :; done; until ip -o link show br0 | grep -q state.UP; do :; done`)
	checks = look(cfg)
	wants("one port is elsewhere", checks, "bridge br0", OK, "1 ports")
	wants("one port is elsewhere", checks, "ports", Fail, "p2 (of s2)", "ip link set PORT master br0")

	run("ip link set p2 master br0; ip link set p2 mtu 1400; ip link set br0 mtu 1500; bridge link set dev p1 isolated on")
	checks = look(cfg)
	wants("too small", checks, "mtu", Fail, "p2 has 1400", "ip link set p2 mtu 1500")
	wants("isolated", checks, "isolated ports", Fail, "p1", "isolated off")

	run("ip link set p2 mtu 1500; bridge link set dev p1 isolated off")
	for _, s := range append(hash, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1") {
		name, value, _ := strings.Cut(s, "=")
		if err := ns.Sysctl(name, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range look(cfg) {
		if c.Status != OK {
			t.Errorf("all is well, and yet: %+v", c)
		}
	}
	run("ip link set far2 down")
	wants("its cable is out", look(cfg), "ports", Warn, "p2 (of s2)", "ip link set PORT up")
	run("ip link set far2 up; until bridge link show dev p2 | grep -q state.forwarding; do :; done")

	// One setting that differs from the others' is enough.
	for _, wrong := range []string{"net.ipv4.fib_multipath_hash_seed=7", "net.ipv4.fib_multipath_hash_policy=1", "net.ipv6.fib_multipath_hash_fields=7"} {
		name, value, _ := strings.Cut(wrong, "=")
		var right string
		for _, s := range hash {
			if strings.HasPrefix(s, name+"=") {
				right = s
			}
		}
		if err := ns.Sysctl(name, value); err != nil {
			t.Fatal(err)
		}
		wants(wrong, look(cfg), "hash", Fail, name+" is ", "sysctl -w "+right+" (")
		name, value, _ = strings.Cut(right, "=")
		if err := ns.Sysctl(name, value); err != nil {
			t.Fatal(err)
		}
	}

	// The file is refused with so few; servers that were added since are not.
	few := switchConfig(t, 64)
	for i := range few.VIPs {
		few.VIPs[i].Buckets = 1
	}
	wants("too few", look(few), "nexthops", Fail, "1 nexthops for 2 servers", "set buckets to 16")
	wants("few", look(switchConfig(t, 4)), "nexthops", Warn, "50 %")
	wants("many", look(switchConfig(t, 1024)), "nexthops", Warn, "ip nexthop")
	run("ip addr add 192.0.2.10/32 dev lo")
	wants("a VIP is the switch's own", look(cfg), "VIP 192.0.2.10", Fail, "ip addr del 192.0.2.10")
}
