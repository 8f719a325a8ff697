package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/vip"
)

const announcing = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
bgp: {local_as: 65001, graceful_restart: 0s, password_file: common}
balancers:
- name: lb1
  interfaces: [eth0]
  bgp: {router_id: 10.0.0.1, neighbours: [{address: 10.0.0.254, as: 65000, bfd: 300ms}, {address: "2001:db8::254", as: 65000, password_file: own}]}
servers: [{name: s1, address: 10.0.1.1}]
vips:
- {name: web, address: 192.0.2.1, port: 80, servers: [s1], announce: healthy, communities: [], med: 5}
`

// Times that nobody wrote have their defaults, and a zero that somebody wrote stays;
// passwords are read from files that others cannot.
func TestBGP(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("fairlead.yaml", announcing, 0o600)
	write("common", "one\n", 0o600)
	cfg, err := Load(filepath.Join(dir, "fairlead.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if b := cfg.BGP; b.HoldTime != DefaultHoldTime || b.GracefulRestart != 0 || b.DrainTime != DefaultDrainTime {
		t.Errorf("times: %+v", b)
	}
	if v := cfg.VIPs[0]; v.Announce != "" || v.Announces() != vip.AnnounceHealthy || v.Communities != nil || v.MED != 5 {
		t.Errorf("VIP: %+v", v.Settings)
	}
	self, err := cfg.Find(RoleBalancer, "lb1")
	if err != nil {
		t.Fatal(err)
	}
	neighbours := self.Speaker().Neighbours
	if neighbours[0].BFD != 300*time.Millisecond {
		t.Errorf("neighbours: %+v", neighbours)
	}
	for _, c := range []struct {
		text  string
		mode  os.FileMode
		wrong string
	}{
		{"", 0, "cannot be read: no such file"},
		{"two", 0o644, "others than its owner can read"},
		{"\n", 0o600, "holds 0 bytes"},
		{strings.Repeat("x", maxPassword+1), 0o600, "holds 81 bytes; write a password of 1 to 80"},
		{"two\n", 0o600, ""},
	} {
		os.Remove(filepath.Join(dir, "own"))
		if c.mode != 0 {
			write("own", c.text, c.mode)
		}
		_, err := cfg.Password(neighbours[1])
		check := cfg.CheckFiles()
		if c.wrong == "" && (err != nil || check != nil) {
			t.Errorf("good: %v, %v", err, check)
		} else if c.wrong != "" && (err == nil || check == nil || !strings.Contains(err.Error(), c.wrong) || !strings.Contains(check.Error(), c.wrong)) {
			t.Errorf("%q %o: %v; %v; want %s", c.text, c.mode, err, check, c.wrong)
		}
	}
	if one, err := cfg.Password(neighbours[0]); one != "one" || err != nil {
		t.Errorf("common password: %q, %v", one, err)
	}
}
