package config

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/vip"
)

var rewrite = flag.Bool("rewrite", false, "write what came out as what is expected")

// known are the lists that rows of package vip make longer.
var known = strings.NewReplacer(
	strings.Join(vip.SchemeNames(), ", "), "{schemes}",
	strings.Join(vip.PolicyNames(), ", "), "{policies}",
	strings.Join(vip.ForwardingNames(), ", "), "{forwardings}")

// TestBad reads pairs of files from testdata/bad.txtar: NAME.yaml, and
// NAME.want with every line that the file must be answered with.
func TestBad(t *testing.T) {
	const path = "testdata/bad.txtar"
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out txtar.Archive
	out.Comment = a.Comment
	for i, f := range a.Files {
		name, isYAML := strings.CutSuffix(f.Name, ".yaml")
		if !isYAML {
			continue
		}
		want := ""
		if i+1 < len(a.Files) && a.Files[i+1].Name == name+".want" {
			want = string(a.Files[i+1].Data)
		}
		_, err := Parse(f.Name, f.Data)
		got := "accepted\n"
		if err != nil {
			got = known.Replace(err.Error()) + "\n"
		}
		out.Files = append(out.Files, f, txtar.File{Name: name + ".want", Data: []byte(got)})
		if got != want && !*rewrite {
			t.Errorf("%s\ngot:\n%swant:\n%s", f.Name, got, want)
		}
		if err == nil {
			t.Errorf("%s: accepted", f.Name)
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, txtar.Format(&out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const good = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
tls: {ca: ca.pem, cert: cert.pem, key: key.pem}
balancers:
- &lb
  name: lb1
  interfaces: [eth0]
  source: 10.200.0.0/16
  source6: 2001:db8:f::1
- <<: *lb
  name: lb2
  api: https://10.0.0.2:7443
  metrics: ""
servers:
- {name: web1, address: 10.0.1.1}
- {name: web2, address: "2001:db8::2"}
- {name: dns1, address: 10.0.1.3, api: none}
vips:
- address: 192.0.2.10
  port: 80
  servers:
  - web1
  - {name: web2, drain: true}
  health: {type: http}
- {name: dns, address: 192.0.2.10, port: all, protocol: udp, servers: [dns1]}
- name: bare
  address: 192.0.2.11
  port: 443
  scheme: jet
  hash: anchor
  warm_up: 10m
  servers: [dns1, {name: web1, standby: true}]
- {name: all, address: 192.0.2.12, port: 443, scheme: full-ct, hash: maglev, servers: [dns1]}
limits: {flows: 4096}
controllers: [{name: c1, store: "https://10.0.0.1:2379"}]
`

func TestGood(t *testing.T) {
	c, err := Parse("fairlead.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.SecretBytes()) != 32 {
		t.Errorf("secret has %d bytes", len(c.SecretBytes()))
	}
	web, dns := c.VIPs[0], c.VIPs[1]
	if web.Name != "192.0.2.10:80/tcp" || web.Scheme != vip.Cheetah || web.Policy != vip.RR || web.CookieBits != 12 ||
		web.Forwarding != vip.IPIP || !*web.ICMPEcho || !*web.MSSClamp || web.Fragments != vip.Drop {
		t.Errorf("defaults of the first VIP: %+v", web)
	}
	if m := web.Servers; m[0] != (Member{Name: "web1", Weight: 1}) || m[1] != (Member{Name: "web2", Weight: 1, Drain: true}) {
		t.Errorf("members %+v", m)
	}
	if h := *web.Health; h != (vip.Health{Type: "http", Port: 80, Path: "/", Host: "192.0.2.10", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}) {
		t.Errorf("health %+v", h)
	}
	if dns.Port != 0 || dns.Scheme != vip.Cheetah || dns.Policy != vip.ByTheHash {
		t.Errorf("defaults of the second VIP: %+v", dns)
	}
	if web.Hash != chash.KindTableHRW || *web.Horizon != 0 || web.Capacity != 0 || web.WarmUp != vip.DefaultWarmUp || !*web.Share || dns.WarmUp != vip.DefaultWarmUpUDP {
		t.Errorf("hashes' defaults: %+v, %+v", web, dns)
	}
	if v := c.VIPs[2]; v.Policy != vip.ByTheHash || v.Hash != chash.KindAnchor || *v.Horizon != 1 || v.Capacity != 0 || v.WarmUp != 10*time.Minute || !*v.Share ||
		v.Servers[1] != (Member{Name: "web1", Weight: 1, Standby: true}) {
		t.Errorf("the third VIP: %+v", v)
	}
	if v := c.VIPs[3]; v.Policy != vip.ByTheHash || *v.Share || *v.Horizon != 0 {
		t.Errorf("defaults of the fourth VIP: %+v", v)
	}
	lb1, lb2 := c.Balancers[0], c.Balancers[1]
	if lb1.API != "unix:/run/fairlead/lb1.sock" || *lb1.Metrics != DefaultMetrics || lb1.Source6.String() != "2001:db8:f::1/128" {
		t.Errorf("lb1 %+v", lb1)
	}
	if *lb2.Metrics != "" || !slices.Equal(lb2.Interfaces, []string{"eth0"}) || lb2.Source != lb1.Source {
		t.Errorf("lb2, which merges lb1: %+v", lb2)
	}
	if c.Limits != (Limits{16384, 2097152, 4096, 262144, 65536, 100}) {
		t.Errorf("limits %+v", c.Limits)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("valid once, not twice: %v", err)
	}
}

// TestGoodChains: a file with the schemes that pass packets on.
func TestGoodChains(t *testing.T) {
	c, err := Parse("fairlead.yaml", []byte(`
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb1, interfaces: [eth0], source: 10.200.0.0/16}]
servers: [{name: web1, address: 10.0.1.1}, {name: web2, address: 10.0.1.2}, {name: six, address: "2001:db8::1"}]
switches:
- {name: sw1}
- {name: sw2, bridge: lan, ports: {web1: eth1, six: eth1}, announce_table: 200, lock_percent: 100, lock_window: 1m, flaps: 1, metrics: ""}
vips:
- {name: a, address: 192.0.2.1, port: 80, scheme: beamer, mptcp: true, servers: [web1, {name: web2, weight: 3}]}
- {name: b, address: 192.0.2.1, port: 53, protocol: udp, scheme: beamer, buckets: 8388608, chain_time: 1s, forwarding: gue, servers: [web1, web2]}
- {name: c, address: 192.0.2.2, port: 80, scheme: faild, servers: [web1, {name: six, drain: true}]}
- {name: d, address: "2001:db8:1::2", port: all, scheme: faild, servers: [web1, {name: six, drain: true}]}
controllers: [{name: c1}]
`))
	if err != nil {
		t.Fatal(err)
	}
	a, b, f := c.VIPs[0], c.VIPs[1], c.VIPs[2]
	if a.Buckets != 4096 || a.ChainTime != 4*time.Minute || !a.MPTCP || a.Policy != vip.ByTheHash || a.Hash != "" || a.WarmUp != 0 || *a.Share || *a.Horizon != 0 || !a.Chains() {
		t.Errorf("defaults of scheme beamer: %+v", a)
	}
	if b.Buckets != vip.Beamer.Row().MaxBuckets || b.ChainTime != time.Second || b.MPTCP {
		t.Errorf("the second VIP: %+v", b)
	}
	if f.Buckets != 256 || f.ChainTime != 4*time.Minute || f.MaxNumbers() != 1023 {
		t.Errorf("defaults of scheme faild: %+v", f)
	}
	if s := c.Switches[0]; s.API != "unix:/run/fairlead/sw1.sock" || *s.Metrics != DefaultMetrics || s.Bridge != "br0" || len(s.Ports) != 0 ||
		s.AnnounceTable != 177 || s.LockPercent != 50 || s.LockWindow != 10*time.Second || s.Flaps != 3 {
		t.Errorf("defaults of a switch: %+v", s)
	}
	if s := c.Switches[1]; s.Bridge != "lan" || s.Ports["web1"] != "eth1" || s.Ports["six"] != "eth1" || s.AnnounceTable != 200 || s.LockPercent != 100 ||
		s.LockWindow != time.Minute || s.Flaps != 1 || *s.Metrics != "" {
		t.Errorf("the second switch: %+v", s)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("valid once, not twice: %v", err)
	}
}

func TestSecretFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fairlead.yaml")
	text := strings.Replace(good, "secret: ", "secret_file: s\n#", 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), ":2:14: secret_file: s: cannot be read") {
		t.Errorf("secret_file that does not exist: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "s"), []byte(strings.Repeat("0123456789abcdef", 4)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.SecretBytes()[1] != 0x23 {
		t.Errorf("secret %x", c.SecretBytes())
	}
}

// TestExposedSecrets: what others than root and the owner can read or change is no
// secret, wherever it stands; the remedy mends it.
func TestExposedSecrets(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "fairlead.yaml"), filepath.Join(dir, "secret")
	text := strings.Repeat("0123456789abcdef", 4)
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(secret, text)
	inline := strings.Replace(good, strings.Split(good, "\n")[1], "secret: "+text, 1)
	beside := strings.Replace(inline, "secret: "+text, "secret_file: secret", 1)
	for _, c := range []struct{ config, exposed, field string }{{inline, file, "secret: stands in this file"}, {beside, secret, "secret_file: secret"}} {
		write(file, c.config)
		for _, mode := range []os.FileMode{0o600, 0o400, 0o700, 0o711} {
			if err := os.Chmod(c.exposed, mode); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(file); err != nil {
				t.Errorf("%s, mode %04o: %v", c.field, mode, err)
			}
		}
		for _, mode := range []os.FileMode{0o644, 0o640, 0o602, 0o620, 0o604, 0o660, 0o666, 0o444, 0o440} {
			if err := os.Chmod(c.exposed, mode); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("%s: others than its owner can read or change it (mode %04o); chmod 600 %s", c.field, mode, c.exposed)
			if _, err := Load(file); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
		if os.Geteuid() == 0 {
			if err := errors.Join(os.Chmod(c.exposed, 0o600), os.Chown(c.exposed, 4711, 0)); err != nil {
				t.Fatal(err)
			}
			if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "it belongs to user 4711, who is neither root nor runs this; chown root "+c.exposed) {
				t.Errorf("another's: %v", err)
			}
		}
		if err := os.Remove(c.exposed); err != nil {
			t.Fatal(err)
		}
		write(secret, text)
	}
	// Without a secret in it the file may be read by all.
	write(file, beside)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err != nil {
		t.Error(err)
	}
}

// TestLongestWarmUp: what the flow table has forgotten is not held.
func TestLongestWarmUp(t *testing.T) {
	for protocol, longest := range map[string]string{vip.TCP: "2h4m", vip.UDP: "2m"} {
		parse := func(more string) error {
			_, err := Parse("f", []byte("servers: [{name: s, address: 10.0.0.1}]\nvips: [{name: v, address: 192.0.2.1, port: 53, scheme: jet, protocol: "+protocol+", warm_up: "+longest+more+", servers: [s]}]"))
			return err
		}
		if err := parse(""); err != nil {
			t.Errorf("%s, %s: %v", protocol, longest, err)
		}
		if err := parse("1s"); err == nil || !strings.Contains(err.Error(), "a connection of "+protocol+" that is silent for "+longest+"0s") ||
			!strings.Contains(err.Error(), "or remove it: the default is "+longest) {
			t.Errorf("%s, %s and a second: %v", protocol, longest, err)
		}
	}
}

func TestDefaultHorizon(t *testing.T) {
	if n := [...]int{DefaultHorizon(0), DefaultHorizon(9), DefaultHorizon(500)}; n != [...]int{1, 1, 50} {
		t.Errorf("default horizons %v", n)
	}
}

// TestManyServers: the pool's bound follows the cookie's width.
func TestManyServers(t *testing.T) {
	var b strings.Builder
	b.WriteString("secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\nservers:\n")
	members := make([]string, 513)
	for i := range members {
		members[i] = "s" + string(rune('a'+i/26/26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
		b.WriteString("- {name: " + members[i] + ", address: \"2001:db8::" + strings.TrimLeft(strings.ToLower(hex4(i+1)), "0") + "\"}\n")
	}
	b.WriteString("vips:\n- {name: v, address: 192.0.2.1, port: 80, cookie_bits: 10, servers: [" + strings.Join(members, ", ") + "]}\n")
	_, err := Parse("f", []byte(b.String()))
	if err == nil || !strings.HasSuffix(err.Error(), "vips[0].servers: 513 servers, but a cookie of 10 bits names 512 slots; write cookie_bits: 11") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("513 servers in 10 bits: %v", err)
	}
}

func hex4(i int) string {
	const d = "0123456789abcdef"
	return string([]byte{d[i>>12&15], d[i>>8&15], d[i>>4&15], d[i&15]})
}

// TestAnyBytes: whatever the file holds, the answer is a Config or lines that
// begin with the file's name, never a panic.
func TestAnyBytes(t *testing.T) {
	pieces := rapid.SampledFrom(append(strings.SplitAfter(good, "\n"), "- ", "  ", ": ", "[", "]", "{", "}", "*lb", "&x ", "<<: ", "!!str ", "|\n", "null", "-1", "\x00", "é", "\t", "servers: 1\n", "vips: [[]]\n", "---\n", "? a\n"))
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(pieces, 0, 40).Draw(t, "pieces"), "")
		_, err := Parse("f", []byte(text))
		if err == nil {
			return
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if !strings.HasPrefix(line, "f:") {
				t.Fatalf("%q in answer to %q", line, text)
			}
		}
	})
}

// TestHashes: the file's words are those of package chash, and every scheme
// has hashes that it takes.
func TestHashes(t *testing.T) {
	for _, scheme := range []vip.Scheme{vip.Cheetah, vip.JET, vip.FullCT, vip.Stateless} {
		for _, kind := range chash.Kinds() {
			c := &Config{Secret: strings.Repeat("0123456789abcdef", 4),
				Servers: []Server{{Name: "s", Address: netip.MustParseAddr("10.0.0.1")}},
				VIPs: []VIP{{
					Settings: vip.Settings{Address: netip.MustParseAddr("192.0.2.1"), Scheme: scheme, Hash: kind},
					Port:     80,
					Servers:  []Member{{Name: "s"}},
				}}}
			err := c.Validate()
			if want := kind.Minimal() || scheme == vip.FullCT || scheme == vip.Stateless; (err == nil) != want {
				t.Errorf("scheme %s with hash %s: %v", scheme, kind, err)
			}
		}
	}
}
