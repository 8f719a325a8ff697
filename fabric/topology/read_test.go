package topology

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const good = `selector: {key: 000102030405060708090a0b0c0d0e0f, radix: 4}
routers:
  - {name: leaf1, addresses: [10.0.0.1, "2001:db8::1"], interfaces: [eth1]}
  - {name: spine1, plain: true}
  - {name: spine2, metrics: 127.0.0.1:9000}
hosts:
  - {name: h1, addresses: [10.1.1.2], ttl: 60}
  - {name: h2, addresses: [10.1.2.2, 10.1.3.2]}
links:
  - {between: [leaf1, spine1], ports: [0, 3], devices: [eth1, eth4], addresses: [10.9.1.1, 10.9.1.2], capacity: 10Gbit}
  - {between: [leaf1, spine2], ports: [1, none], cost: 2, down: true}
  - {between: [h1, leaf1], devices: [none, eth9]}
  - {between: [h2, spine1], addresses: [10.1.2.2, none], capacity: 2.5Gbit}
  - {between: [h2, spine2], addresses: [10.1.3.2, none], capacity: 1500}
`

func TestReadAndWrite(t *testing.T) {
	f, err := Parse("good.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if f.Links[0].Capacity != 10e9 || f.Links[3].Capacity != 25e8 || f.Links[4].Capacity != 1500 ||
		f.Links[0].Cost != 1 || f.Links[1].Cost != 2 || !f.Links[1].Down || f.Links[1].Ends[1].Port != -1 ||
		f.Links[0].Ends[1].Port != 3 || f.Nodes[3].TTL != 60 || f.Nodes[4].TTL != 64 || !f.Nodes[1].Plain {
		t.Errorf("read: %+v", f)
	}
	roundTrip(t, f)
	r := rand.New(rand.NewPCG(1, 2))
	for _, generate := range []func() (*Fabric, error){
		func() (*Fabric, error) { return FatTree(4) },
		func() (*Fabric, error) { return LeafSpine(3, 2, 2) },
		func() (*Fabric, error) { return BCube(3, 1) },
		func() (*Fabric, error) { return Jellyfish(10, 3, 20, r) },
	} {
		f, err := generate()
		if err != nil {
			t.Fatal(err)
		}
		f.Selector.Key[0] = 1
		roundTrip(t, f)
	}
}

// roundTrip writes and reads. The file lists routers before hosts, so nodes
// are compared by name.
func roundTrip(t *testing.T, f *Fabric) {
	t.Helper()
	var first, second bytes.Buffer
	if err := Write(&first, f); err != nil {
		t.Fatal(err)
	}
	g, err := Parse("written.yaml", first.Bytes())
	if err != nil {
		t.Fatalf("%v\n%s", err, first.Bytes())
	}
	if err := Write(&second, g); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("written twice:\n%s\n%s", first.Bytes(), second.Bytes())
	}
	if len(f.Links) != len(g.Links) || !reflect.DeepEqual(f.LinkNames(), g.LinkNames()) || f.Selector != g.Selector {
		t.Errorf("read back:\n%+v\n%+v", f, g)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"key: 000102030405060708090a0b0c0d0e0f, ", "", "f:1:11: selector.key: missing; write 32 hex digits"},
		{"000102030405060708090a0b0c0d0e0f", "0001", "selector.key: 2 bytes, must be 16"},
		{"000102030405060708090a0b0c0d0e0f", "00000000000000000000000000000000", "selector.key: one byte repeated is no key"},
		{"000102030405060708090a0b0c0d0e0f", "zz", "selector.key: not hexadecimal"},
		{"key: 000102030405060708090a0b0c0d0e0f", "key_file: /nowhere/key", "selector.key_file: /nowhere/key: cannot be read: no such file or directory; make one with `fairlead secret /nowhere/key`"},
		{"radix: 4", "radix: 65", "f:1:58: selector.radix: 65: out of range; write more than the highest port's number, 2 to 64"},
		{"radix: 4", "radix: 3", "f:10:43: links[0].ports[1]: 3: does not fit the radix, which is 3; write 0 to 2, none, or a larger selector.radix"},
		{"radix: 4", "radix: 4, permutation: rc", "selector.permutation: rc: unknown; write"},
		{"radix: 4", "radix: 4, permutation: rc5, ipv4: source-port", "selector: ipv4: source-port has 16 bits and permutation rc5 needs 32"},
		{"radix: 4", "radix: 4, ipv4: flow-label", "selector.ipv4: flow-label: unknown; write ports, source-port"},
		{"radix: 4", "radxi: 4", "selector.radxi: unknown key; write radix"},
		{"name: spine2", "name: spine1", "routers[2].name: spine1: already the name of routers[1]"},
		{"name: spine2", "name: 10.0.0.7", "an address is no name"},
		{"name: spine2", "name: a/b", "not a name"},
		{"[h1, leaf1]", "[h1, laef1]", "links[2].between[1]: laef1: no such router or host; write leaf1, or add it under routers or hosts"},
		{"[h1, leaf1]", "[h1]", "links[2].between: 1 names, must be two"},
		{"[h1, leaf1]", "[h1, h1]", "a link from a node to itself"},
		{"[h1, leaf1]", "[h2, leaf1]", "hosts[0].name: h1: has no link, so that no path leads there"},
		{"ports: [1, none]", "ports: [0, none]", "links[1].ports[0]: 0: already the port of leaf1 at links[0]; give each of a router's ports a number of its own"},
		{"ports: [1, none]", "ports: [x, none]", "links[1].ports[0]: x: not a port's number; write a number from 0 on, or none"},
		{"ports: [1, none]", "ports: [1]", "links[1].ports: 1 items, must be two"},
		{"devices: [none, eth9]", "ports: [2, none]", "links[2].ports[0]: 2: h1 is a host, whose ports have no numbers; write none"},
		{"devices: [none, eth9]", "devices: [none, 'a b']", "links[2].devices[1]: a b: not an interface's name"},
		{"10Gbit", "10Gbot", "links[0].capacity: 10Gbot: not a rate; write bit/s such as 10Gbit"},
		{"10Gbit", "-1", "links[0].capacity: -1: not a rate"},
		{"cost: 2", "cost: 0", "links[1].cost: 0: out of range; write 1 to 65536"},
		{"ttl: 60", "ttl: 0", "hosts[0].ttl: 0: out of range"},
		{"ttl: 60", "ttl: 256", "hosts[0].ttl: 256: out of range"},
		{"addresses: [10.1.1.2]", "addresses: [10.0.0.1]", "hosts[0].addresses[0]: 10.0.0.1: already an address of leaf1"},
		{"addresses: [10.1.1.2]", "addresses: [224.0.0.1]", "not an address that packets of the fabric can have"},
		{"[10.9.1.1, 10.9.1.2]", `[10.9.1.1, "2001:db8::7"]`, "links[0].addresses: one address is IPv4, the other IPv6; write both of one family"},
		{"127.0.0.1:9000", "9000", "routers[2].metrics: 9000: not an address with a port"},
		{"metrics: 127.0.0.1:9000", "api: http://127.0.0.1:9000", "routers[2].api: http://127.0.0.1:9000: plain http is for the path service"},
		{"metrics: 127.0.0.1:9000", "api: https://127.0.0.1:9000", "needs certificates, and the file names none"},
		{"routers:", "paths: {api: 'http://192.0.2.1:80'}\nrouters:", "paths.api: http://192.0.2.1:80: plain http is for loopback addresses"},
		{"routers:", "tls: {ca: ca.pem}\nrouters:", "tls.cert: missing"},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Errorf("%s is not in the file", c.old)
		}
		_, err := Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s:\n%v\nwant %s", c.old, c.new, err, c.want)
		}
	}
	for _, text := range []string{"", "routers: [", "a: 1\n---\nb: 2\n"} {
		if _, err := Parse("f", []byte(text)); err == nil || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTruncated: no part of a file makes the reader fall.
func TestTruncated(t *testing.T) {
	for i := range len(good) {
		if f, err := Parse("f", []byte(good[:i])); (f == nil) == (err == nil) {
			t.Fatalf("at %d: %v, %v", i, f, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fabric.yaml")
	key := "000102030405060708090a0b0c0d0e0f"
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("fabric.yaml", strings.Replace(good, "key: "+key, "key_file: fabric.key", 1), 0o600)
	write("fabric.key", key+strings.Repeat("ab", 16)+"\n", 0o600) // as fairlead secret writes it
	f, err := Read(file)
	if err != nil || f.Selector.Key[15] != 15 {
		t.Errorf("%v, %v", f, err)
	}
	if err := os.Chmod(filepath.Join(dir, "fabric.key"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "others than its owner can read or change it (mode 0640); chmod 600 ") {
		t.Error(err)
	}
	// What is written names the file again, and does not tell the key.
	var b bytes.Buffer
	if err := Write(&b, f); err != nil || strings.Contains(b.String(), key) || !strings.Contains(b.String(), "key_file: fabric.key") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestTLSFiles are the file's folder's, and stay as written where the file is written again.
func TestTLSFiles(t *testing.T) {
	f, err := Parse("/etc/fabric/fabric.yaml", []byte(strings.Replace(good, "routers:", "tls: {ca: ca.pem, cert: /srv/cert.pem, key: ../key.pem}\nrouters:", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if want := (TLS{CA: "/etc/fabric/ca.pem", Cert: "/srv/cert.pem", Key: "/etc/key.pem"}); f.TLS != want {
		t.Errorf("%+v, want %+v", f.TLS, want)
	}
	var b bytes.Buffer
	if err := Write(&b, f); err != nil || !strings.Contains(b.String(), "ca: ca.pem, cert: /srv/cert.pem, key: ../key.pem") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestKeyOfAnother: a key that is there is not made anew.
func TestKeyOfAnother(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fabric.key"), nil, 0); err != nil {
		t.Fatal(err)
	}
	asNobody(t)
	text := strings.Replace(good, "key: 000102030405060708090a0b0c0d0e0f", "key_file: fabric.key", 1)
	_, err := Parse(filepath.Join(dir, "fabric.yaml"), []byte(text))
	if want := "selector.key_file: fabric.key: cannot be read: permission denied; run as its owner or root"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// asNobody takes root's rights to files from the rest of a test.
func asNobody(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	before, err := unix.SetfsuidRetUid(65534)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Setfsuid(before)
		runtime.UnlockOSThread()
	})
}

// TestDraft: nodes may be without links where these are still to be learned.
func TestDraft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	text := good[:strings.Index(good, "links:")]
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := ReadDraft(file); err != nil || len(f.Nodes) != 5 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := Read(file); err == nil || strings.Count(err.Error(), "has no link") != 5 {
		t.Error(err)
	}
}

// TestDuplicate: a name that is there twice is one problem, not two.
func TestDuplicate(t *testing.T) {
	_, err := Parse("f", []byte(strings.Replace(good, "name: h2", "name: leaf1", 1)))
	if err == nil || !strings.Contains(err.Error(), "already the name") || strings.Contains(err.Error(), "leaf1: has no link") {
		t.Error(err)
	}
}

func TestRates(t *testing.T) {
	for _, text := range []string{"10Gbit", "2500Mbit", "64kbit", "1bit"} {
		v, err := ParseRate(text)
		if err != nil || FormatRate(v) != text {
			t.Errorf("%s: %d, %v, %s", text, v, err, FormatRate(v))
		}
	}
	for _, text := range []string{"", "Gbit", "0", "1.5", "NaN", "1e20", "-3Mbit", "Inf"} {
		if v, err := ParseRate(text); err == nil {
			t.Errorf("%q: %d", text, v)
		}
	}
}

// TestManyProblems: one slip in a large file is told in a hundred lines, soon.
func TestManyProblems(t *testing.T) {
	var text strings.Builder
	text.WriteString("selector: {key: 000102030405060708090a0b0c0d0e0f}\nrouters:\n")
	for i := range 300 {
		fmt.Fprintf(&text, "  - {name: router-%d}\n", i)
	}
	text.WriteString("hosts: []\nlinks:\n")
	for i := range 300 {
		fmt.Fprintf(&text, "  - {between: [ruoter-%d, ruoter-%d]}\n", i, (i+1)%300)
	}
	_, err := Parse("f", []byte(text.String()))
	lines := strings.Split(err.Error(), "\n")
	if last := lines[len(lines)-1]; len(lines) != 101 || !strings.HasPrefix(last, "f: and ") || strings.Count(err.Error(), "write router-") > 100 {
		t.Errorf("%d lines, the last %s", len(lines), last)
	}
}

// TestHostileProblem: what a file holds does not reach the terminal raw.
func TestHostileProblem(t *testing.T) {
	_, err := Parse("f", []byte("selector: {key: 000102030405060708090a0b0c0d0e0f, permutation: \"\\e[31m"+strings.Repeat("x", 5000)+"\"}\nrouters: []\nhosts: []\nlinks: []\n"))
	if err == nil || strings.ContainsRune(err.Error(), '\x1b') || len(err.Error()) > 1000 {
		t.Errorf("%q", err)
	}
}
