package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const aSecret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// TestDesired: a machine whose file holds only how to come to the store goes by the
// store's text, with its own secret, certificates and folder.
func TestDesired(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("secret", aSecret)
	boot, err := Load(write("fairlead.yaml", "secret_file: secret\ntls: {ca: ca, cert: cert, key: key}\ncontrollers: [{name: c1, store: \"https://10.0.0.9:2379\"}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !boot.Bootstrap() {
		t.Error("it is a bootstrap file")
	}
	const text = `
secret_file: /somewhere/else
tls: {ca: /x, cert: /y, key: /z}
fabric: fabric.yaml
balancers: [{name: lb1, interfaces: [eth0], api: "https://10.0.0.1:7443"}]
servers: [{name: s1, address: 10.0.1.1}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1]}]
`
	c, err := boot.Desired("version 7", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if want := (TLS{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}); boot.TLS != want {
		t.Errorf("tls of the file's folder is %+v", boot.TLS)
	}
	if c.TLS != boot.TLS || c.SecretFile != "secret" || len(c.SecretBytes()) != 32 || c.Fabric != filepath.Join(dir, "fabric.yaml") ||
		c.Controllers[0].Store != "https://10.0.0.9:2379" || c.Bootstrap() || len(c.VIPs) != 1 {
		t.Errorf("%+v", c)
	}
	boot.Fabric = "/etc/here.yaml"
	if c, err = boot.Desired("version 7", []byte(text)); err != nil || c.Fabric != "/etc/here.yaml" {
		t.Errorf("%v %v", c, err)
	}
	for text, want := range map[string]string{
		strings.Replace(text, "port: 80", "port: 0", 1): "version 7:7:47: vips[0].port: 0: not a port",
		"metrics: \"\"\n": "no VIP: this file holds only how to come to the store",
		"":                "version 7: empty",
	} {
		if _, err := boot.Desired("version 7", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestShared: no secret comes into a store's text, and all else does.
func TestShared(t *testing.T) {
	const rest = "balancers: [{name: lb1, interfaces: [eth0]}] # here\n\nvips: []\n"
	for text, want := range map[string]string{
		rest:                                    rest,
		"secret_file: x\n" + rest:               "secret_file: x\n" + rest,
		"secret: " + aSecret + " # !\n" + rest:  rest,
		rest + "secret: " + aSecret:             rest,
		"secret:\n  " + aSecret + "\n" + rest:   "balancers: [{name: lb1, interfaces: [eth0]}] # here\nvips: []\n",
		"{secret: " + aSecret + ", vips: []}":   "{vips: []}\n",
		"secret: >-\n " + aSecret + "\n" + rest: "balancers: [{name: lb1, interfaces: [eth0]}] # here\nvips: []\n",
	} {
		if got, err := Shared([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%s\nbecame\n%s\n%v", text, got, err)
		}
	}
}

// TestDiff: only what is said differently, and not how.
func TestDiff(t *testing.T) {
	const text = "secret_file: a\nvips:\n  - {name: web, servers: [s1, s2]} # shop\n\nlimits: {flows: 4096}\n"
	for after, want := range map[string]string{
		text: "",
		"secret_file: b\nvips:\n- name: \"web\"   # shop\n  servers: [\n    s1, s2]\nlimits:\n  flows: 4096\n": "",
		strings.Replace(text, "s1,", "{name: s1, drain: true},", 1):                                            "@@ -1,7 +1,8 @@ vips: - name: web servers: - - s1 + - name: s1 + drain: true - s2 limits: flows: 4096",
		strings.Replace(text, "# shop", "# our shop", 1):                                                       "@@ comments @@ -# shop +# our shop",
	} {
		lines, err := Diff([]byte(text), []byte(after))
		if got := strings.Join(lines, " "); err != nil || strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
			t.Errorf("%s\n%q %v", after, lines, err)
		}
	}
	if lines, err := Diff(nil, []byte(text)); err != nil || len(lines) < 5 || !strings.HasPrefix(lines[0], "@@") {
		t.Errorf("%q %v", lines, err)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawText(t), drawText(t)
		x, errA := said([]byte(a))
		y, errB := said([]byte(b))
		lines, err := Diff([]byte(a), []byte(b))
		if errA != nil || errB != nil || err != nil {
			t.Fatal(errA, errB, err)
		}
		if len(lines) == 0 && !same(x, y) {
			t.Fatalf("no difference between\n%s\nand\n%s", a, b)
		}
		if lines, err = Diff([]byte(a), []byte(a)); err != nil || len(lines) > 0 {
			t.Fatal(lines, err)
		}
	})
}
