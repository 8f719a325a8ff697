package topology

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// reports are what lldpd 1.0.16 said of three machines: a and b with two links
// between them, b and c with one; c does not forward, but says that it can.
func reports(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, name := range []string{"router-a.json", "router-b.json", "router-c.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		out["somewhere/"+name] = data
	}
	return out
}

func TestFromLLDP(t *testing.T) {
	all := reports(t)
	f, err := FromLLDP(all, LLDPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, f); err != nil {
		t.Fatal(err)
	}
	_, links, _ := strings.Cut(b.String(), "\n") // the first line has the random key
	const want = `routers:
  - {name: router-a}
  - {name: router-b, addresses: [10.66.0.1]}
hosts:
  - {name: router-c, addresses: [10.66.0.2], ttl: 64}
links:
  - {between: [router-a, router-b], ports: [0, 0], devices: [ab1, ba1]}
  - {between: [router-a, router-b], ports: [1, 1], devices: [ab2, ba2]}
  - {between: [router-b, router-c], ports: [2, none], devices: [bc1, cb1]}
`
	if links != want || f.Selector.Radix != 4 {
		t.Errorf("%s, want\n%s", b.String(), want)
	}
	if g, err := Parse("f", b.Bytes()); err != nil || len(g.Links) != 3 {
		t.Errorf("%v, %v", g, err)
	}
	// One end's report will do: both ends' names are in it.
	for name := range all {
		if !strings.HasSuffix(name, "b.json") {
			delete(all, name)
		}
	}
	if g, err := FromLLDP(all, LLDPOptions{Hosts: []string{"router-a"}}); err != nil || len(g.Links) != 3 || !g.Nodes[1].Host {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestLLDPRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "x.json: not what `lldpcli -f json0 show neighbors` prints",
		`{"lldp": {"interface": []}}`:   "x.json: not what `lldpcli -f json0 show neighbors` prints", // -f json
		`{"lldp": [{"interface": []}]}`: "no file names a neighbour",
	} {
		if _, err := FromLLDP(map[string][]byte{"x.json": []byte(text)}, LLDPOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	data := reports(t)["somewhere/router-b.json"]
	for i := range data {
		if f, err := FromLLDP(map[string][]byte{"b.json": data[:i]}, LLDPOptions{}); (f == nil) == (err == nil) {
			t.Fatalf("cut at %d: %v, %v", i, f, err)
		}
	}
}

func TestDeviceOrder(t *testing.T) {
	names := []string{"", "eth0", "eth2", "eth10", "eth10p1", "eth10p2", "swp1", "swp1s0"}
	for i, a := range names {
		for j, b := range names {
			if c := byNumbers(a, b); (c < 0) != (i < j) || (c == 0) != (i == j) {
				t.Errorf("%q, %q: %d", a, b, c)
			}
		}
	}
}
