package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// What a router lacks is said, with the remedy; nothing of a sound one fails.
func TestRouterChecks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	of, err := topology.LeafSpine(2, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	of.Selector.Key = [16]byte{1, 2, 3}
	f, err := fabrics.Up(t.Context(), of, fabrics.Options{Name: fmt.Sprint("fdoctor", os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
	})
	look := func() (checks []Check) {
		t.Helper()
		err := f.In("leaf-0", func() error {
			r := &report{}
			r.router(f.Topology(), f.Node("leaf-0"))
			checks = r.checks
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return checks
	}
	has := func(checks []Check, name string, s Status, text string) bool {
		return slices.ContainsFunc(checks, func(c Check) bool {
			return c.Name == name && c.Status == s && strings.Contains(c.Detail+" → "+c.Remedy, text)
		})
	}
	if checks := look(); Failed(checks) || !has(checks, "next hops", OK, "have several") || !has(checks, "rules", OK, "") || !has(checks, "forwarding", OK, "") {
		t.Errorf("a sound router: %+v", checks)
	}
	in := func(do func() error) {
		t.Helper()
		if err := f.In("leaf-0", do); err != nil {
			t.Fatal(err)
		}
	}
	in(func() error { return netspace.Sysctl("net.ipv4.ip_forward", "0") })
	in(func() error { return exec.Command("ip", "rule", "add", "from", "10.0.0.0/8", "table", "42").Run() })
	in(func() error {
		return exec.Command("ip", "route", "replace", "192.0.2.0/24", "via", "10.255.0.1", "dev", "eth1", "onlink").Run()
	})
	f.Topology().Links[f.Link("leaf-0", "spine-0", 0)].Ends[0].Device = "eth77"
	checks := look()
	for _, want := range []struct {
		name   string
		status Status
		text   string
	}{
		{"rules", Fail, "delete it"},
		{"forwarding", Fail, "sysctl -w net.ipv4.ip_forward=1"},
		{"interface eth77", Fail, "correct the link's devices"},
	} {
		if !has(checks, want.name, want.status, want.text) {
			t.Errorf("no %s of %q with %q in %+v", want.status, want.name, want.text, checks)
		}
	}
}
