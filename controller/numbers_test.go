package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
)

// TestNoAbsurdNumber: whichever number of an assignment is negative or beyond
// all sense, and whichever time is, no daemon takes it. The assignment has every
// field set, so that a new one is tried, too.
func TestNoAbsurdNumber(t *testing.T) {
	cfg, err := config.Parse("fairlead.yaml", []byte(`
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
balancers: [{name: lb1, interfaces: [eth0], source: 10.0.0.1}]
servers: [{name: s1, address: 10.0.0.21}, {name: s2, address: 10.0.0.22}]
vips:
  - {name: a, address: 192.0.2.10, port: 80, scheme: jet, hash: anchor, capacity: 16, horizon: 2, warm_up: 1m, servers: [s1, s2], health: {type: http}}
  - {name: b, address: 192.0.2.10, port: 81, scheme: beamer, buckets: 8, servers: [s1, s2]}
  - {name: c, address: 192.0.2.10, port: 82, policy: wrr, hash: table-hrw, servers: [s1, s2]}
`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := First(cfg)
	if err != nil {
		t.Fatal(err)
	}
	moment := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	a.Version = 7
	s := &a.VIPs[0].Slots[0]
	s.OldWeight, s.Version = 3, 5
	s.Since, s.WeightSince, s.DrainSince, s.RestUntil = moment, moment, moment, moment
	for i := range a.VIPs[0].HorizonSteps {
		a.VIPs[0].HorizonSteps[i].Since = moment
	}
	text := a.Encode()
	if _, err := Decode(text); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	var walk func(path string, at any, put func(any))
	try := func(path string, old any, put func(any), values ...any) {
		t.Helper()
		for _, v := range values {
			put(v)
			data, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Decode(data); err == nil {
				t.Errorf("%s: %v was taken", path, v)
			}
		}
		put(old)
		tried[path[strings.LastIndex(path, ".")+1:]] = true
	}
	walk = func(path string, at any, put func(any)) {
		switch v := at.(type) {
		case map[string]any:
			for key, child := range v {
				walk(path+"."+key, child, func(x any) { v[key] = x })
			}
		case []any:
			for i, child := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), child, func(x any) { v[i] = x })
			}
		case float64:
			if strings.Contains(path, "hash_key") { // bytes
				return
			}
			try(path, at, put, -1, -1<<40, -1<<63, 1<<62)
		case string:
			if _, err := time.Parse(time.RFC3339, v); err == nil {
				try(path, at, put, "0001-01-02T00:00:00Z", "1970-01-01T00:00:00Z", "9999-01-01T00:00:00Z")
			}
		}
	}
	walk("", tree, nil)
	for _, field := range []string{"version", "epoch", "stamp_epoch", "id", "port", "cookie_bits", "hash_rows", "capacity", "horizon", "warm_up", "chain_time",
		"interval", "timeout", "rise", "fall", "number", "weight", "old_weight", "rest_until", "since", "weight_since", "drain_since", "next_vip_id", "top"} {
		if !tried[field] {
			t.Errorf("%s was not tried: set it above", field)
		}
	}
}
