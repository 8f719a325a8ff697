package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const steerFabric = `
selector: {key: 00112233445566778899aabbccddeeff, permutation: feistel, radix: 16, ipv4: ports, ipv6: ports}
routers:
  - {name: leaf1}
  - {name: leaf2}
  - {name: spine1}
  - {name: spine2}
hosts:
  - {name: lb1, addresses: [10.1.0.2]}
  - {name: s1, addresses: [10.2.0.2]}
links:
  - {between: [leaf1, spine1], ports: [0, 0]}
  - {between: [leaf1, spine2], ports: [1, 0]}
  - {between: [leaf2, spine1], ports: [0, 1]}
  - {between: [leaf2, spine2], ports: [1, 1]}
  - {between: [lb1, leaf1], ports: [none, 2]}
  - {between: [s1, leaf2], ports: [none, 2]}
`

const steered = `
secret: 00112233445566778899aabbccddeeff00112233445566778899aabbccddeefe
fabric: fabric.yaml
balancers: [{name: lb1, interfaces: [eth0], source: 10.1.0.2/32}]
servers: [{name: s1, address: 10.2.0.2}]
vips: [{address: 192.0.2.1, port: 80, forwarding: gue, steer: connection, servers: [s1]}]
`

// The fabric's file is read beside the configuration, and both must fit.
func TestSteerFabric(t *testing.T) {
	for _, c := range []struct{ name, fabric, file, want string }{
		{"right", steerFabric, steered, ""},
		{"no file", "", steered, ": fabric: "}, // the field, and its line
		{"no file", "", steered, "fabric.yaml: cannot be read: no such file or directory; write where the fabric's file is"},
		{"broken", strings.Replace(steerFabric, "radix: 16", "radix: 1", 1), steered, "selector.radix"},
		{"no balancer", steerFabric, strings.ReplaceAll(steered, "name: lb1", "name: lb2"), "balancers[0].name: lb2: the fabric has no host called lb2"},
		{"no server", steerFabric, strings.ReplaceAll(steered, "10.2.0.2", "10.2.0.3"), "servers[0].address: 10.2.0.3: VIP 192.0.2.1:80/tcp is steered, and balancer lb1: no host of the fabric has the address 10.2.0.3"},
		{"plain", strings.Replace(steerFabric, "{name: leaf1}", "{name: leaf1, plain: true}", 1), steered, "leaf1 is plain"},
		{"port beyond the radix", strings.Replace(steerFabric, "ports: [1, 0]", "ports: [16, 0]", 1), steered, "16"},
		{"nothing steered", steerFabric, strings.NewReplacer("steer: connection, ", "", "lb1", "lb9").Replace(steered), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "fairlead.yaml")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.fabric != "" {
				if err := os.WriteFile(filepath.Join(dir, "fabric.yaml"), []byte(c.fabric), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg, err := Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Fabric != filepath.Join(dir, "fabric.yaml") {
				t.Errorf("fabric %s is not beside the file", cfg.Fabric)
			}
			err = cfg.CheckFiles()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
