package member

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/topology"
)

// SIGHUP has the fabric's file read again. What is wrong with it is told until it is
// right, and the plane hears nothing of it.
func TestReloadFabric(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const fabric = `
selector: {key: 00112233445566778899aabbccddeeff, radix: 16}
routers: [{name: leaf1}]
hosts: [{name: lb1, addresses: [10.0.0.1]}, {name: s1, addresses: [10.0.0.2]}]
links:
  - {between: [lb1, leaf1], ports: [none, 0]}
  - {between: [s1, leaf1], ports: [none, 1]}
`
	write("fabric.yaml", fabric)
	const deployment = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
fabric: fabric.yaml
balancers: [{name: lb1, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.0.2}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1]}]
`
	write("fairlead.yaml", deployment)
	var read *topology.Fabric
	var refuse error
	d := newMember(Options{File: filepath.Join(dir, "fairlead.yaml"), Name: "lb1", Log: slog.New(slog.DiscardHandler)}, Role{
		Is: config.RoleBalancer, Fixed: func(config.Self) []Setting { return nil },
		Service: func(m *Member) fairleadv1connect.FairleadHandler { return Service{m} },
	})
	if err := d.read(); err != nil {
		t.Fatal(err)
	}
	first, err := controller.First(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	d.opened.Fabric = func(f *topology.Fabric) (changed bool, err error) {
		if refuse == nil {
			read = f
		}
		return true, refuse
	}
	d.force.Store(&inForce{Assignment: first})
	reload := func(radix int, want string) {
		t.Helper()
		if _, err := d.reload(); err != nil {
			t.Error(err)
		}
		if read == nil || read.Selector.Radix != radix {
			t.Errorf("the plane has %+v, want radix %d", read, radix)
		}
		warnings := strings.Join(d.settings.Load().refused, "\n")
		if want == "" && warnings != "" || !strings.Contains(warnings, want) || strings.Contains(warnings, "\n") {
			t.Errorf("warnings %q, want %q", warnings, want)
		}
	}
	reload(16, "")
	write("fabric.yaml", strings.Replace(fabric, "radix: 16", "radix: 8", 1))
	reload(8, "")
	write("fabric.yaml", strings.Replace(fabric, "radix: 16", "radix: 1, permutation: md5", 1))
	reload(8, "; and more; put it right")
	write("fabric.yaml", fabric)
	refuse = errors.New("s1 is not there")
	reload(8, "what was read before is: s1 is not there; put it right and reload (SIGHUP)")
	refuse = nil
	reload(16, "")
	// Files that would take all memory, if anybody read them to their end.
	write("fabric.yaml", "routers: "+strings.Repeat("[", 120_000))
	reload(16, "not YAML: exceeded max depth")
	before := d.settings.Load()
	write("fairlead.yaml", "servers: &a ["+strings.Repeat("*a, ", 20_000)+"]")
	if _, err := d.reload(); err == nil || d.settings.Load() != before {
		t.Errorf("a file that is none is in force (%v)", err)
	}
	// What the answer says: who came and left, and what takes a restart.
	write("fairlead.yaml", strings.Replace(deployment, "servers: [{name: s1, address: 10.0.0.2}]", "servers: [{name: s1, address: 10.0.0.2}, {name: s2, address: 10.0.0.3}]\ncontrollers: [{name: c1}]", 1))
	r, err := d.reload()
	if err != nil || !slices.Contains(r.Changed, "peer s2, at unix:/run/fairlead/s2.sock") || len(r.Restart) != 1 || !strings.Contains(r.Restart[0], "controllers or store changed in "+dir) {
		t.Errorf("%+v, %v", r, err)
	}
	write("fairlead.yaml", deployment)
	if r, err = d.reload(); err != nil || !slices.Contains(r.Changed, "peer s2 has left") || len(r.Restart) != 0 || len(r.Refused) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
