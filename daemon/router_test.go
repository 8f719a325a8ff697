package daemon

import (
	"testing"

	"github.com/fairlead/fairlead/fabric/topology"
)

// TestOutgrown: what a router cannot take over while it runs is said to need a
// restart, and links alone do not.
func TestOutgrown(t *testing.T) {
	of := func() *topology.Fabric { return &topology.Fabric{Nodes: []topology.Node{{Name: "leaf1"}}} }
	was := of()
	d := &routerDaemon{fabric: was, node: &was.Nodes[0]}
	for name, change := range map[string]func(*topology.Fabric){
		"selector":   func(f *topology.Fabric) { f.Selector.Radix++ },
		"tls":        func(f *topology.Fabric) { f.TLS.Cert = "other.pem" },
		"plain":      func(f *topology.Fabric) { f.Nodes[0].Plain = true },
		"api":        func(f *topology.Fabric) { f.Nodes[0].API = "https://[::1]:1" },
		"metrics":    func(f *topology.Fabric) { f.Nodes[0].Metrics = "127.0.0.1:1" },
		"interfaces": func(f *topology.Fabric) { f.Nodes[0].Interfaces = []string{"eth1"} },
	} {
		f := of()
		if change(f); !d.outgrown(f, &f.Nodes[0]) {
			t.Errorf("%s changed and no restart is asked for", name)
		}
	}
	f := of()
	f.Links = []topology.Link{{}}
	if d.outgrown(f, &f.Nodes[0]) {
		t.Error("a link changed and a restart is asked for")
	}
}
