package doctor_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/inspect/doctor"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// A fabric's file that disagrees with the routes is refused by name: ports
// exchanged, a link cut, a link that the file lacks, another key.
func TestTopology(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("fabrics of namespaces need root: run the tests with sudo")
	}
	program := built.Fairlead(t)
	of, err := topology.LeafSpine(2, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	of.Selector.Key[0] = 1
	f, err := fabrics.Up(t.Context(), of, fabrics.Options{Name: fmt.Sprint("bdoc", os.Getpid()), Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
	})
	// says waits until a line of the report begins so, as routers need a moment
	// to follow.
	says := func(what string, file *topology.Fabric, want doctor.Status, text string) {
		t.Helper()
		var checks []doctor.Check
		ok := netspace.WaitFor(10*time.Second, func() bool {
			checks = doctor.Topology(t.Context(), file)
			return slices.ContainsFunc(checks, func(c doctor.Check) bool { return c.Status == want && strings.Contains(c.Detail, text) })
		})
		if !ok {
			t.Errorf("%s: no line is %s and says %q: %+v", what, want, text, checks)
		}
		if want == doctor.Fail && !doctor.Failed(checks) {
			t.Errorf("%s: not failed", what)
		}
		t.Logf("%s: %+v", what, checks)
	}
	change := func(edit func(*topology.Fabric)) *topology.Fabric {
		c := *f.Topology()
		c.Links = slices.Clone(c.Links)
		edit(&c)
		return &c
	}
	says("as it is", f.Topology(), doctor.OK, "all as the file says")

	first, second := f.Link("leaf-0", "spine-0", 0), f.Link("leaf-0", "spine-1", 0)
	leaf := f.Topology().Nodes[f.Node("leaf-0")].Name
	says("ports exchanged", change(func(c *topology.Fabric) {
		a, b := &c.Links[first].Ends, &c.Links[second].Ends
		a[0].Port, b[0].Port = b[0].Port, a[0].Port
	}), doctor.Fail, leaf+": its port 0")
	says("a link is missing in the file", change(func(c *topology.Fabric) { c.Links = slices.Delete(c.Links, second, second+1) }),
		doctor.Fail, "no link of the file is known to be that")
	says("a link costs more in the file", change(func(c *topology.Fabric) { c.Links[second].Cost = 5 }), doctor.Fail, "by the file another way is shorter")
	says("another key", change(func(c *topology.Fabric) { c.Selector.Key[0]++ }), doctor.Fail, "other than this file's")

	if err := f.Cut(second); err != nil {
		t.Fatal(err)
	}
	says("a link is cut", f.Topology(), doctor.Fail, fmt.Sprintf("%s does not send to", leaf))
	if err := f.Reroute(); err != nil {
		t.Fatal(err)
	}
	says("the file knows that it is cut", change(func(c *topology.Fabric) { c.Links[second].Down = true }), doctor.OK, "all as the file says")
}
