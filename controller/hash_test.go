package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// TestOldAssignment: one that was written before there were hashes to choose
// from goes on, and nothing in it moves.
func TestOldAssignment(t *testing.T) {
	old := []byte(`{
  "version": 7, "keys": [{"epoch": 0, "secret": "AAECAwQFBgcICQoLDA0ODw=="}], "stamp_epoch": 0, "hash_key": [1, 2], "next_vip_id": 3,
  "vips": [
    {"id": 1, "name": "web", "address": "192.0.2.1", "port": 80, "protocol": "tcp", "scheme": "cheetah", "policy": "rr", "affinity": "connection",
     "forwarding": "ipip", "cookie_bits": 12, "fragments": "drop", "icmp_echo": true, "mss_clamp": true,
     "slots": [{"number": 0, "server": "s1", "address": "10.0.1.1", "weight": 1, "state": "active", "api": "unix:/run/fairlead/s1.sock"},
       {"number": 1, "server": "s2", "address": "10.0.1.2", "weight": 1, "state": "draining", "api": "unix:/run/fairlead/s2.sock"}]},
    {"id": 2, "name": "dns", "address": "192.0.2.1", "port": 53, "protocol": "udp", "scheme": "cheetah", "policy": "hash", "affinity": "connection",
     "forwarding": "ipip", "cookie_bits": 12, "fragments": "drop", "icmp_echo": true, "mss_clamp": true,
     "slots": [{"number": 0, "server": "s1", "address": "10.0.1.1", "weight": 1, "state": "active", "api": "unix:/run/fairlead/s1.sock"}]}
  ]}`)
	a, err := Decode(old)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	steps, changes, err := Change(a, LiveCounts{}, now, false, Op{Kind: Undrain, Server: "s2"})
	if err != nil || len(steps) != 1 || !slices.Equal(changes, []string{"version 8: vip web: s2 (slot 1) takes new connections again"}) {
		t.Fatalf("%q %v", changes, err)
	}
	if web, dns := steps[0].VIPs[0], steps[0].VIPs[1]; web.HashRows != 0 || web.Hash != chash.KindTableHRW || web.WarmUp != vip.DefaultWarmUp ||
		dns.Hash != chash.KindTableHRW || dns.WarmUp != vip.DefaultWarmUpUDP || dns.Share {
		t.Errorf("what was absent: %+v", steps[0].VIPs)
	}
	cfg, err := config.Parse("f", []byte(`
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
servers: [{name: s1, address: 10.0.1.1}, {name: s2, address: 10.0.1.2}]
vips:
- {name: web, address: 192.0.2.1, port: 80, servers: [s1, {name: s2, drain: true}]}
- {name: dns, address: 192.0.2.1, port: 53, protocol: udp, servers: [s1]}`))
	if err != nil {
		t.Fatal(err)
	}
	steps, changes, err = Plan(cfg, a, LiveCounts{}, now, false)
	if err != nil || len(steps) != 1 || strings.Join(changes, "\n") != "version 8: vip web: share true, was false\nversion 8: vip dns: share true, was false" {
		t.Errorf("%q %v", changes, err)
	}
	if steps[0].VIPs[0].HashRows != 0 {
		t.Errorf("%d rows", steps[0].VIPs[0].HashRows)
	}
}

// TestValidateHash: what a data plane could not carry out.
func TestValidateHash(t *testing.T) {
	good := func() *VIP {
		v := &VIP{
			ID:       1,
			Settings: vip.Settings{Name: "v", Address: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Port: 80, Protocol: vip.TCP, Scheme: vip.JET, Policy: vip.ByTheHash, Affinity: vip.Connection, Forwarding: vip.IPIP, Fragments: vip.Drop, CookieBits: 12, Hash: chash.KindAnchor, Capacity: 8, Horizon: 2, WarmUp: time.Hour},
		}
		for i := range 3 {
			v.Slots = append(v.Slots, Slot{Number: uint16(i), Server: fmt.Sprint("s", i), Address: addr(10, 0, 0, byte(i+1)), Weight: 1, State: Active})
		}
		v.stepHorizon(time.Time{})
		return v
	}
	table := func(v *VIP) {
		v.Hash, v.Capacity, v.Horizon, v.HorizonSteps, v.HashRows = chash.KindTableHRW, 0, 0, nil, 2048
	}
	for want, change := range map[string]func(*VIP){
		"": func(*VIP) {},
		"hash: rendezvous: unknown to this version": func(v *VIP) { v.Hash = "rendezvous" },
		"capacity: 0: out of range":                 func(v *VIP) { v.Capacity = 0 },
		"capacity: 16385: out of range":             func(v *VIP) { v.Capacity = 16385 },
		"slot 2: at most 1":                         func(v *VIP) { v.Capacity = 2 },
		"capacity: 8: hash table-hrw has no":        func(v *VIP) { table(v); v.Capacity = 8 },
		"horizon: 2: hash table-hrw needs":          func(v *VIP) { table(v); v.Horizon = 2 },
		"horizon: -1: out of range; write":          func(v *VIP) { v.Horizon = -1 },
		"hash_rows 1000: must be a power":           func(v *VIP) { table(v); v.HashRows = 1000 },
		"hash_rows 131072: must be":                 func(v *VIP) { table(v); v.HashRows = 1 << 17 },
		"hash_rows -1: must be":                     func(v *VIP) { table(v); v.HashRows = -1 },
		"warm_up: -1s: out of range":                func(v *VIP) { v.WarmUp = -time.Second },
		"warm_up: 25h0m0s: the flow table forgets":  func(v *VIP) { v.WarmUp = 25 * time.Hour },
		"policy: rr: scheme jet finds":              func(v *VIP) { v.Policy = vip.RR },
		"hash: maglev: scheme jet tracks what":      func(v *VIP) { table(v); v.Hash = chash.KindMaglev },
		"horizon steps end at 0, must":              func(v *VIP) { v.HorizonSteps = nil },
		"horizon steps end at 4, must":              func(v *VIP) { v.HorizonSteps[0].Top = 4 },
		"horizon step 1 (below 5 since":             func(v *VIP) { v.HorizonSteps = append(v.HorizonSteps, v.HorizonSteps[0]) },
		"slot 1: old weight -1: must be":            func(v *VIP) { v.Slots[1].OldWeight = -1 },
		"slot 1: state \"away\" is unknown":         func(v *VIP) { v.Slots[1].State = "away" },
	} {
		v := good()
		change(v)
		if err := v.validate(); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q expected, got %v", want, err)
		}
	}
}

// TestHorizonSteps: since when each number has been in the horizon, through
// growing, shrinking and time.
func TestHorizonSteps(t *testing.T) {
	at := func(minutes int) time.Time {
		return time.Unix(1_800_000_000, 0).Add(time.Duration(minutes) * time.Minute)
	}
	v := &VIP{
		Settings: vip.Settings{Hash: chash.KindAnchor, Capacity: 20, Horizon: 2, WarmUp: time.Hour},
		Slots:    []Slot{{Number: 4}},
	}
	v.stepHorizon(time.Time{})
	for _, c := range []struct {
		minute  int
		change  func()
		want    string
		sinceOf [3]int // numbers 6, 8, 10: minutes, -1: since ever, -2: not yet
	}{
		{0, func() {}, "7@-", [3]int{-1, -2, -2}},
		{1, func() { v.Slots = append(v.Slots, Slot{Number: 6}) }, "7@- 9@1", [3]int{-1, 1, -2}},
		{2, func() { v.Horizon = 4 }, "7@- 9@1 11@2", [3]int{-1, 1, 2}},
		{3, func() { v.Slots = v.Slots[:1] }, "7@- 9@1", [3]int{-1, 1, -2}},
		{4, func() { v.Horizon = 3 }, "7@- 8@1", [3]int{-1, -2, -2}},
		{5, func() { v.Horizon = 6 }, "7@- 8@1 11@5", [3]int{-1, 5, 5}},
		{61, func() {}, "8@1 11@5", [3]int{1, 5, 5}},
		{66, func() { v.Horizon = 100 }, "11@5 20@66", [3]int{5, 5, 5}},
		{67, func() { v.Hash, v.Capacity = chash.KindTableHRW, 0 }, "", [3]int{-2, -2, -2}},
	} {
		c.change()
		v.stepHorizon(at(c.minute))
		var got []string
		for _, s := range v.HorizonSteps {
			since := "-"
			if !s.Since.IsZero() {
				since = fmt.Sprint(s.Since.Sub(at(0)).Minutes())
			}
			got = append(got, fmt.Sprintf("%d@%s", s.Top, since))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("minute %d: %v, want %s", c.minute, got, c.want)
		}
		for i, number := range []uint16{6, 8, 10} {
			want := at(c.sinceOf[i])
			switch c.sinceOf[i] {
			case -1:
				want = time.Time{}
			case -2:
				want = at(1000)
			}
			if got := v.inHorizonSince(number, at(1000)); !got.Equal(want) {
				t.Errorf("minute %d: number %d in the horizon since %s, want %s", c.minute, number, got, want)
			}
		}
	}
}
