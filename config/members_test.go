package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMembers: what all machines share adds the store's members to those of a machine's
// file, and never those of what may be another store.
func TestMembers(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(aSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		c1    = `{name: c1, store: "https://10.0.0.1:2379", peer: "https://10.0.0.1:2380"}`
		c2    = `{name: c2, store: "https://10.0.0.2:2379", peer: "https://10.0.0.2:2380"}`
		c3    = `{name: c3, store: "https://10.0.0.3:2379", peer: "https://10.0.0.3:2380"}`
		three = "controllers: [" + c1 + ", " + c2 + ", " + c3 + "]\n"
		c9    = "controllers: [{name: c9, store: \"https://10.0.0.9:2379\"}]\n"
		own   = "store: {etcd: [\"https://10.0.0.1:2379\", \"https://10.0.0.7:2379\"]}\n"
		other = "store: {etcd: [\"https://10.0.0.1:2379\"], prefix: /other/}\n"
		rest  = `
balancers: [{name: lb1, interfaces: [eth0], api: "https://10.0.0.1:7443"}]
servers: [{name: s1, address: 10.0.1.1, api: "https://10.0.1.1:7443"}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1]}]
`
	)
	for _, of := range []struct{ file, text, at, says string }{
		{three, three, "1 2 3", ""},
		{"controllers: [" + c2 + "]\n", three, "2 1 3", "does not name the store's https://10.0.0.1:2379, https://10.0.0.3:2379"},
		{three, "controllers: [" + c1 + "]\n", "1 2 3", ""},
		{"controllers: [" + c1 + "]\n", "", "1", ""}, // the text says nothing: the file's
		{c9, three, "9", "put its file right"},
		{"controllers: [" + c1 + "]\n", own, "1 7", "does not name the store's https://10.0.0.7:2379"},
		{"controllers: [" + c1 + "]\n", other, "1", "(/other/) by what all machines share"},
	} {
		path := filepath.Join(dir, "fairlead.yaml")
		if err := os.WriteFile(path, []byte("secret_file: secret\ntls: {ca: ca, cert: cert, key: key}\n"+of.file), 0o600); err != nil {
			t.Fatal(err)
		}
		boot, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := boot.Desired("the text", []byte(of.text+rest))
		if err != nil {
			t.Fatal(err)
		}
		endpoints, differs := boot.Members(want)
		at := strings.NewReplacer("https://10.0.0.", "", ":2379", "").Replace(strings.Join(endpoints, " "))
		if at != of.at || !strings.Contains(differs, of.says) || (of.says == "") != (differs == "") {
			t.Errorf("%s beside %s: %s %q", of.file, of.text, at, differs)
		}
	}
}
