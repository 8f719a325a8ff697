package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/daemon/daemontest"
)

// TestFlood: one caller who keeps calls open, as many as he can, keeps no other from
// being answered, and is answered again when he has let go of them.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	s.begin() // so that a stream has something to say when it begins
	var open []io.Closer
	refused := 0
	for range 4 * streamBounds.one {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.api+"/fairlead.v1.Control/WatchEvents", bytes.NewReader(envelope(`{"follow": true}`)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/connect+json")
		resp, err := clientWith(t, s.tls("vic")).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp.Body)
		if resp.Header.Get("Content-Type") != "application/connect+json" {
			t.Errorf("%s", resp.Status)
		}
		first := make([]byte, 512)
		n, err := resp.Body.Read(first)
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if bytes.Contains(first[:n], []byte("resource_exhausted")) {
			refused++
		}
		if refused > 3 {
			break
		}
	}
	if refused == 0 {
		t.Errorf("%d streams of one caller are open", len(open))
	}
	for _, who := range []string{"vic", "otto", "ada", "lb1"} { // his calls are no streams
		if a := s.call(who, "GetHistory", "{}"); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", who, a.status, a.body)
		}
	}
	for _, o := range open {
		o.Close()
	}
	for deadline := time.Now().Add(daemontest.Patience); ; time.Sleep(10 * time.Millisecond) {
		a := callWith(s.clients["vic"], s.api, "WatchEvents", "application/connect+json", envelope("{}"))
		if a.status == http.StatusOK && !bytes.Contains(a.body, []byte("resource_exhausted")) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("he is not answered any more: %d %s", a.status, a.body)
		}
	}
}

// TestBadInput: what cannot be right is refused with what is wrong, and changes nothing.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	for _, method := range []string{"Describe", "DrainServer", "RotateKey"} {
		body := map[string]string{"Describe": `{"vip": "web"}`, "DrainServer": `{"server": "s1"}`, "RotateKey": `{}`}[method]
		if a := s.call("ada", method, body); a.code != "failed_precondition" || !strings.Contains(a.message, "the store is empty") {
			t.Errorf("%s of an empty store: %d %s", method, a.status, a.body)
		}
	}
	s.begin()
	long := strings.Repeat("x", maxRequest)
	for _, c := range []struct{ method, body, code, says string }{
		{"GetHistory", `{"last": 1001}`, "invalid_argument", "last: 1001: at most 1000"},
		{"GetHistory", `{"last": -1}`, "invalid_argument", ""},
		{"GetHistory", `{"first": 1}`, "invalid_argument", `unknown field "first"`},
		{"GetHistory", ``, "invalid_argument", "the request is empty"},
		{"GetHistory", `[`, "invalid_argument", ""},
		{"Describe", `{}`, "invalid_argument", "one of vip and server"},
		{"Describe", `{"vip": "web", "server": "s1"}`, "invalid_argument", "one of vip and server"},
		{"Describe", `{"vip": "nosuch"}`, "not_found", "no vip nosuch; there are [web]"},
		{"Describe", `{"server": "nosuch"}`, "not_found", "no vip has a server nosuch"},
		{"DrainServer", `{}`, "invalid_argument", "server: missing"},
		{"DrainServer", `{"server": "nosuch"}`, "not_found", "nosuch"},
		{"DrainServer", `{"vip": "nosuch", "server": "s1"}`, "not_found", "no vip nosuch"},
		{"DrainServer", `{"server": "s1", "without": ["nosuch"]}`, "invalid_argument", "without nosuch"},
		{"UndrainServer", `{}`, "invalid_argument", "server: missing"},
		{"RemoveServer", `{}`, "invalid_argument", "server: missing"},
		{"AddServer", `{}`, "invalid_argument", "server: missing"},
		{"AddServer", `{"vip": "web", "server": "s2", "address": "nowhere"}`, "invalid_argument", "address nowhere: not an IP address"},
		{"AddServer", `{"vip": "web", "server": "c1", "address": "10.99.0.66", "api": "none"}`, "invalid_argument", "server c1: a controller is called so"},
		{"AddServer", `{"vip": "web", "server": "lb1", "address": "10.99.0.66", "api": "none", "force": true}`, "invalid_argument", "server lb1: a balancer is called so"},
		{"AddServer", `{"server": "s7"}`, "not_found", `no vip of the configuration has a server "s7"`},
		{"SetWeight", `{"vip": "web", "weight": 3}`, "invalid_argument", "server: missing"},
		{"SetWeight", `{"vip": "web", "server": "s1"}`, "invalid_argument", "weight"},
		{"SetWeight", `{"vip": "web", "server": "s1", "weight": 4294967295}`, "invalid_argument", "weight"},
		{"Plan", `{}`, "invalid_argument", "text: missing"},
		{"Apply", `{"text": ""}`, "invalid_argument", "text: missing"},
		{"Apply", `{"text": "vips: ["}`, "invalid_argument", "not YAML"},
		{"Apply", `{"text": "vips: [", "file": "their.yaml"}`, "invalid_argument", "their.yaml:"},
		{"Plan", `{"text": "vips: [", "file": "their.yaml"}`, "invalid_argument", "their.yaml:"},
		{"Plan", `{"text": "vips: [", "file": "a\u001b[2J"}`, "invalid_argument", "file: "},
		{"Apply", `{"text": "vips: [", "file": "` + strings.Repeat("x", 256) + `"}`, "invalid_argument", "at most 255 printable characters"},
		{"DrainServer", `{"server": "lb1"}`, "invalid_argument", "lb1 is a balancer and no server of a VIP"},
		{"Apply", with(s.file("[nobody]"), ""), "invalid_argument", "nobody"},
		{"Apply", with(s.file("[s1]"), `, "expectedVersion": 77`), "aborted", "77"},
		{"Rollback", `{}`, "invalid_argument", "version: missing"},
		{"Rollback", `{"version": 99}`, "not_found", "99"},
		{"Apply", `{"text": "` + long + `"}`, "resource_exhausted", "larger than"},
		{"NoSuch", `{}`, "unimplemented", "fairlead.v1.Control has no method NoSuch"},
	} {
		a := s.call("ada", c.method, c.body)
		if a.status == http.StatusOK || a.status == 0 || a.code != c.code || !strings.Contains(a.message, c.says) {
			body := c.body
			if len(body) > 200 {
				body = body[:200]
			}
			t.Errorf("%s %s: %d %s %v, want %s: %s", c.method, body, a.status, a.body, a.err, c.code, c.says)
		}
	}
	for request, says := range map[string]string{`{"afterVersion": "99"}`: "the newest version is 1", `{"after": 1}`: "unknown field"} {
		a := callWith(s.clients["vic"], s.api, "WatchEvents", "application/connect+json", envelope(request))
		if all := envelopes(t, a.body); len(all) != 1 || !strings.Contains(strings.ReplaceAll(all[0], `\"`, `"`), says) || !strings.Contains(all[0], "invalid_argument") {
			t.Errorf("WatchEvents %s: %q", request, all)
		}
	}
	if a := s.call("vic", "GetHistory", "{}"); !bytes.Contains(a.body, []byte(`"version":"1"`)) || bytes.Contains(a.body, []byte(`"version":"2"`)) {
		t.Errorf("what was refused changed something: %s", a.body)
	}
}

// TestEvents: a watcher is told of what was before, of each change and who made it, in
// order, and that the controller stops.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	s.begin()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.api+"/fairlead.v1.Control/WatchEvents", bytes.NewReader(envelope(`{"follow": true}`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+json")
	resp, err := s.clients["vic"].Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	next := func() map[string]any {
		t.Helper()
		head := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, head); err != nil {
			t.Fatal(err)
		}
		body := make([]byte, int(head[3])<<8|int(head[4]))
		if _, err := io.ReadFull(resp.Body, body); err != nil {
			t.Fatal(err)
		}
		var e map[string]any
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	want := func(kind, version, who string) {
		t.Helper()
		for {
			switch e := next(); {
			case e["kind"] == kind && e["version"] == version && (who == "" || e["who"] == who):
				return
			case e["error"] != nil || e["kind"] == "KIND_AGREED":
				t.Fatalf("%v, want %s of version %s", e, kind, version)
			}
		}
	}
	want("KIND_AGREED", "1", "ada")
	want("KIND_IN_FORCE", "1", "")
	for v := 2; v <= 4; v++ {
		verb := []string{"DrainServer", "UndrainServer"}[v%2]
		if a := s.call("ada", verb, `{"server": "s1", "force": true}`); a.status != http.StatusOK {
			t.Fatalf("%s", a.body)
		}
		want("KIND_AGREED", fmt.Sprint(v), "ada")
	}
	s.stop()
	for {
		if e := next(); e["error"] != nil {
			if text := fmt.Sprint(e["error"]); !strings.Contains(text, "unavailable") || !strings.Contains(text, "stopping") {
				t.Errorf("at the end: %s", text)
			}
			return
		}
	}
}
