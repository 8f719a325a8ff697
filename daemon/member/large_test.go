package member_test

import (
	"encoding/hex"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
)

const largeTable = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
controllers: [{name: c1, store: "https://127.0.0.1:2379"}]
tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}
balancers:
  - {name: lb1, interfaces: [eth0], source: 10.200.0.0/16, api: "https://127.0.0.1:%[2]d", metrics: "127.0.0.1:%[3]d"}
  - {name: lb2, interfaces: [eth0], source: 10.201.0.0/16, api: "https://127.0.0.1:%[4]d", metrics: ""}
servers:
  - {name: s1, address: 10.0.0.21, interfaces: [eth0], api: "https://127.0.0.1:%[5]d", metrics: ""}
  - {name: s2, address: 10.0.0.22, interfaces: [eth0], api: "https://127.0.0.1:%[6]d", metrics: ""}
vips:
  - {name: web, address: 192.0.2.10, port: 80, servers: [s1, s2], scheme: beamer, buckets: 70000}
`

// An assignment whose text is long: a change of it ends, and it comes to the disk behind
// the maps, from where a daemon begins when nobody else answers. What a build before
// pinned, the text's digest, is known.
func TestLarge(t *testing.T) {
	t.Parallel()
	d := membertest.NewOf(t, largeTable)
	d.Planes["lb1"] = membertest.NewPlane(t.TempDir())
	for name, role := range map[string]config.Role{"s1": config.RoleHost, "s2": config.RoleHost, "lb1": config.RoleBalancer, "lb2": config.RoleBalancer} {
		d.Start(role, name)
	}
	if err := d.Drain("s1"); err != nil {
		t.Fatal(err)
	}
	s := d.Status("lb1")
	a := d.Held("lb1")
	if sum := a.Digest(); s.AssignmentVersion < 2 || !a.Large() || string(s.AssignmentDigest) != string(sum[:]) {
		t.Fatalf("version %d, digest %x", s.AssignmentVersion, s.AssignmentDigest)
	}
	onDisk := func() *controller.Assignment {
		is, err := member.ReadAssignment(d.State(), "lb1")
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	d.Eventually("the drain is on disk", func() bool { is := onDisk(); return is != nil && is.Digest() == a.Digest() })
	d.StopAll()
	d.Away = true
	text := a.TextDigest()
	if err := member.MakeForce(filepath.Join(d.Planes["lb1"].Pins, "force"), member.ForceText(a.Version, hex.EncodeToString(text[:]), *d.Planes["lb1"].Base)); err != nil {
		t.Fatal(err)
	}
	d.Start(config.RoleBalancer, "lb1")
	if s := d.Status("lb1"); s.AssignmentVersion != a.Version || d.Warned("lb1", "damaged") {
		t.Errorf("from disk, by the text's digest: version %d, %q", s.AssignmentVersion, s.Warnings)
	}
}
