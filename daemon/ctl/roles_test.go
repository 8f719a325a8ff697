package ctl

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/daemon/kept"
)

// The rules as docs/security.md has them, written once more: which role each call
// needs. A request of each that can be right.
var rules = []struct {
	method  string
	request string
	role    access.Role
	forced  access.Role // with force, or without a daemon
}{
	{"GetConfig", `{}`, access.View, access.None},
	{"GetHistory", `{}`, access.View, access.None},
	{"GetControllers", `{}`, access.View, access.None},
	{"Describe", `{"vip": "web"}`, access.View, access.None},
	{"WatchEvents", `{}`, access.View, access.None},
	{"Plan", ``, access.View, access.View},
	{"DrainServer", `{"server": "s1"}`, access.Operate, access.Administer},
	{"UndrainServer", `{"server": "s1"}`, access.Operate, access.Administer},
	{"AddServer", `{"vip": "web", "server": "s9", "address": "10.0.0.29", "api": "none"}`, access.Operate, access.Administer},
	{"RemoveServer", `{"vip": "web", "server": "s1"}`, access.Operate, access.Administer},
	{"SetWeight", `{"vip": "web", "server": "s1", "weight": 2}`, access.Operate, access.Administer},
	{"RotateKey", `{}`, access.Administer, access.Administer},
	{"Apply", ``, access.Administer, access.Administer},
	{"Rollback", `{"version": 1}`, access.Administer, access.Administer},
	{"Reload", `{}`, access.Administer, access.None},
}

// TestRoles: a certificate of each role tries each call, as it is, with force, and without a daemon.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	s.begin()
	methods := fairleadv1.File_control_proto.Services().ByName("Control").Methods()
	if methods.Len() != len(rules) {
		t.Errorf("%d methods, and %d rules", methods.Len(), len(rules))
	}
	try := func(who, method, request string, needed access.Role, suffix string) {
		t.Helper()
		kind, body := "application/json", []byte(request)
		if method == "WatchEvents" {
			kind, body = "application/connect+json", envelope(request)
		}
		a := callWith(s.clients[who], s.api, method, kind, body)
		has := callers[who]
		if has == access.None {
			has = access.View // a machine's
		}
		text := string(a.body)
		denied := strings.Contains(text, "permission_denied")
		if denied == (has >= needed) || a.status == 0 {
			t.Errorf("%s (%s) calls %s%s: %d %s %v", who, has, method, suffix, a.status, text, a.err)
		}
		if want := method + suffix + " needs the role " + needed.String() + ", and " + who + " has " + has.String(); denied && !strings.Contains(text, want) {
			t.Errorf("%s calls %s%s: %s, want %q", who, method, suffix, text, want)
		}
		if machine := callers[who] == access.None; denied && machine != strings.Contains(text, "--role "+needed.String()) {
			t.Errorf("%s calls %s%s, denied without a way out, or with one that is none: %s", who, method, suffix, text)
		}
	}
	for _, r := range rules {
		if methods.ByName(protoName(r.method)) == nil {
			t.Errorf("there is no method %s", r.method)
		}
		request := r.request
		if request == "" {
			request = with(s.file("[s1]"), "")
		}
		for who := range callers {
			try(who, r.method, request, r.role, "")
			if r.forced == access.None {
				continue
			}
			for more, suffix := range map[string]string{`"force": true}`: " with force", `"without": ["s1"]}`: " without daemons"} {
				if r.forced == r.role {
					suffix = ""
				}
				if request != "{}" {
					more = ", " + more
				}
				try(who, r.method, strings.TrimSuffix(request, "}")+more, r.forced, suffix)
			}
		}
	}
	// Beside it root has a socket.
	own := kept.OwnSocket(filepath.Join(s.dir, "state"), "c1")
	if len(own) <= maxSocket {
		out, err := exec.Command("curl", "-sS", "--max-time", "20", "--unix-socket", own, "-H", "Content-Type: application/json", "-d", `{"server": "s1", "force": true}`,
			"http://fairlead/fairlead.v1.Control/DrainServer").CombinedOutput()
		if err != nil || strings.Contains(string(out), "permission_denied") {
			t.Errorf("root at %s: %v %s", own, err, out)
		}
	}
	// The document is for who may look, too.
	for who := range callers {
		resp, err := s.clients[who].Get(s.api + "/openapi.json")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v %v", who, resp, err)
		}
		resp.Body.Close()
	}
}

// TestStrangers: without a certificate of this deployment that is good now, nothing is
// answered, and the log says who tried.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	foreign := t.TempDir() // another deployment's, with a role of the same name
	other, err := certs.Open(foreign)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Issue(certs.Subject{Name: "ada", Role: access.Administer}); err != nil {
		t.Fatal(err)
	}
	mixed := tlsIn(filepath.Join(foreign, "ada"))
	mixed.CA = s.tls("c1").CA // it believes the server
	expired := expiredCertificate(t, s.authority)
	noRole := tlsIn(filepath.Join(s.authority, "ada"))
	for name, files := range map[string]string{"foreign": mixed.Cert, "expired": expired.Cert} {
		before := strings.Count(s.log.String(), "a caller's certificate was refused")
		use := mixed
		if name == "expired" {
			use = expired
		}
		if a := callWith(clientWith(t, use), s.api, "GetHistory", "application/json", []byte("{}")); a.status != 0 || a.err == nil {
			t.Errorf("%s (%s): %d %s", name, files, a.status, a.body)
		}
		if got := strings.Count(s.log.String(), "a caller's certificate was refused"); before == 0 && got != 1 {
			t.Errorf("%s: %d lines about it in the log", name, got)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "CN=ada") && !strings.Contains(log, "CN=old") {
		t.Errorf("who tried is not in the log: %s", log)
	}
	bare := clientWith(t, noRole)
	bare.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = nil
	if a := callWith(bare, s.api, "GetHistory", "application/json", []byte("{}")); a.status != 0 || a.err == nil {
		t.Errorf("without a certificate: %d %s", a.status, a.body)
	}
	plain := &http.Client{Timeout: daemontest.Patience}
	a := callWith(plain, strings.Replace(s.api, "https://", "http://", 1), "GetHistory", "application/json", []byte("{}"))
	if a.status == http.StatusOK {
		t.Errorf("in the clear: %d %s", a.status, a.body)
	}
	// Whom all that does not concern is answered.
	if a := s.call("vic", "GetHistory", "{}"); a.status != http.StatusOK {
		t.Errorf("vic: %+v", a)
	}
}

// TestStoreKnowsNoUsers: users' certificates are none for the store, which knows no
// roles; machines' are.
func TestStoreKnowsNoUsers(t *testing.T) {
	t.Parallel()
	address := net.IPv4(127, 13, byte(os.Getpid()>>8), byte(os.Getpid()))
	ports := freePorts(t, address, 1)
	folder := t.TempDir()
	ca, err := certs.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []certs.Subject{{Name: "c1", Endpoints: []string{"https://" + ports[0]}}, {Name: "ada", Role: access.Administer}, {Name: "s1"}} {
		if _, err := ca.Issue(subject); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	d := newDeployment(t, "tls: {ca: "+folder+"/c1/ca.pem, cert: "+folder+"/c1/cert.pem, key: "+folder+"/c1/key.pem}\n"+
		"controllers: [{name: c1, store: \"https://"+ports[0]+"\", api: \"unix:"+dir+"/a\"}]\n")
	d.start("c1")
	d.open(0)
	ask := func(name string) error {
		c := clientWith(t, tlsIn(filepath.Join(folder, name)))
		c.Timeout = daemontest.Patience
		resp, err := c.Get("https://" + ports[0] + "/version")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if err := ask("s1"); err != nil {
		t.Errorf("a machine: %v", err)
	}
	if err := ask("ada"); err == nil {
		t.Error("the store answered a user, whatever her role")
	}
}

// TestSocket: at a unix socket the kernel says who calls: root may all, others nothing,
// whatever the socket's mode.
func TestSocket(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	dir, err := os.MkdirTemp("", "fl-ctl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := dir + "/a"
	d := newDeployment(t, "controllers: [{name: c1, store: \"unix:"+dir+"/s\", api: \"unix:"+socket+"\"}]\n")
	d.start("c1")
	d.open(0)
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	ask := func(uid uint32) string {
		t.Helper()
		cmd := exec.Command("curl", "-sS", "--max-time", "20", "--retry", "20", "--retry-all-errors", "--retry-delay", "1", "--unix-socket", socket, "-H", "Content-Type: application/json", "-d", `{}`,
			"http://fairlead/fairlead.v1.Control/RotateKey")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	deadline := time.Now().Add(daemontest.Patience)
	for {
		got := ask(0)
		if strings.Contains(got, "the store is empty") {
			break
		}
		if !strings.Contains(got, "unavailable") || time.Now().After(deadline) {
			t.Fatalf("root: %s", got)
		}
	}
	if got := ask(65534); !strings.Contains(got, "permission_denied") || !strings.Contains(got, "has none") {
		t.Errorf("somebody else: %s", got)
	}
}

// TestAudit: changes and denied calls are written down, with who and which versions, and
// nothing secret.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	s.begin()
	s.call("vic", "GetHistory", "{}") // is not: it changes nothing
	s.call("vic", "DrainServer", `{"server": "s1"}`)
	s.call("ada", "SetWeight", `{"vip": "web", "server": "nobody", "weight": 3}`)
	if a := s.call("ada", "RotateKey", `{"force": true}`); a.status != http.StatusOK {
		t.Errorf("rotate: %s", a.body)
	}
	const many = 200
	for range many { // nobody writes it full
		s.call("vic", "RotateKey", "{}")
	}
	path := filepath.Join(s.dir, "state", "c1", auditName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	var lines []auditLine
	for text := range strings.Lines(string(data)) {
		var l auditLine
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		lines = append(lines, l)
	}
	if len(lines) < 4 || len(lines) > 4+deniedMost {
		t.Fatalf("%d lines", len(lines))
	}
	for i, want := range []auditLine{
		{Who: "ada", Role: "administer", Call: "/fairlead.v1.Control/Apply", To: 1, Outcome: "done"},
		{Who: "vic", Role: "view", Call: "/fairlead.v1.Control/DrainServer", Outcome: "denied"},
		{Who: "ada", Role: "administer", Call: "/fairlead.v1.Control/SetWeight", Outcome: "not_found"},
		{Who: "ada", Role: "administer", Call: "/fairlead.v1.Control/RotateKey", From: 1, Outcome: "done"},
	} {
		got := lines[i]
		if got.Who != want.Who || got.Role != want.Role || got.Call != want.Call || got.Outcome != want.Outcome || got.From != want.From || want.To != 0 && got.To != want.To || got.At.IsZero() {
			t.Errorf("line %d: %+v, want %+v", i, got, want)
		}
	}
	if lines[3].To <= 1 {
		t.Errorf("rotate: %+v", lines[3])
	}
	for _, where := range []string{string(data), s.log.String()} {
		if strings.Contains(where, "000102030405") {
			t.Error("the secret is in it")
		}
		if !strings.Contains(where, "nobody") {
			t.Error("the request is not in it")
		}
	}
	records, err := s.open(lines[3].To).History(t.Context(), 0, 999)
	if err != nil || len(records) < 2 || records[0].Who != "ada" || records[len(records)-1].Who != "ada" {
		t.Errorf("%+v %v", records, err)
	}
}
