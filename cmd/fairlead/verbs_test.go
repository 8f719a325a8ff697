package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
	"github.com/fairlead/fairlead/config"
)

// follow runs a command that ends with ctx, and gives its lines.
func (d *deployment) follow(ctx context.Context, command string) (lines <-chan string, ended <-chan int) {
	out, in := io.Pipe()
	all, end := make(chan string, 100), make(chan int, 1)
	go func() {
		args := append(strings.Fields(command), "-f", d.file)
		end <- cli.Run(ctx, newRootCommand(), args, strings.NewReader(""), in, io.Discard)
		in.Close()
	}()
	go func() {
		defer close(all)
		for s := bufio.NewScanner(out); s.Scan(); {
			all <- s.Text()
		}
	}()
	return all, end
}

// TestDrainWait: drain --wait ends when the agent counts nothing any more, and not before;
// with --timeout it says how many are left.
func TestDrainWait(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	s1 := d.daemons["s1"]
	s1.has(3)
	d.run(1, "drain s1 --wait --timeout 1s", "s1 is drained, and 3 connections are left after 1s; run it again to wait on, or `fairlead remove --force`: its slot rests")
	_, ended := d.follow(t.Context(), "drain s1 --wait --timeout 1m")
	select {
	case status := <-ended:
		t.Fatalf("it ended with 3 connections left: %d", status)
	case <-time.After(2 * waitEvery):
	}
	s1.has(0)
	if status := <-ended; status != 0 {
		t.Errorf("with none left: exit status %d", status)
	}
	d.run(0, "remove web s1", "slot 0 rests until")
	d.run(2, "drain s2 --timeout 5s", "--timeout: goes with --wait")
}

// TestEventsFollow: what happens is told as it does, the leader and a version among it.
func TestEventsFollow(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	ctx, cancel := context.WithCancel(t.Context())
	lines, ended := d.follow(ctx, "events --follow -o json")
	want := func(what string, is func(eventLine) bool) {
		t.Helper()
		timeout := time.After(20 * time.Second)
		for {
			select {
			case line, more := <-lines:
				var e eventLine
				if !more || json.Unmarshal([]byte(line), &e) != nil {
					t.Fatalf("%s: %q", what, line)
				}
				if is(e) {
					return
				}
			case <-timeout:
				t.Fatalf("%s: never told", what)
			}
		}
	}
	want("who leads", func(e eventLine) bool { return e.Kind == "leader" && e.Daemon == "c1" })
	d.run(0, "weight web s2 7")
	want("version 2", func(e eventLine) bool {
		return e.Kind == "agreed" && e.Version == 2 && strings.Contains(e.Text[0], "weight 7")
	})
	want("version 2 in force", func(e eventLine) bool { return e.Kind == "in_force" && e.Version == 2 })
	cancel()
	if status := <-ended; status != 0 {
		t.Errorf("exit status %d", status)
	}
	if out := d.run(0, "events"); !strings.Contains(out, "weight 7") || !strings.Contains(out, "c1 leads") {
		t.Error(out)
	}
}

// TestLastServer: draining or removing the last server of a VIP that takes new connections is
// refused, with which and what to do; a file that says so is believed, and told of.
func TestLastServer(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	d.run(0, "drain s1")
	const refused = "fairlead: vip web: s2 is the last of its servers that takes new connections: nobody would answer new clients; undrain s1 before, or add another, or --force\n"
	d.run(1, "drain s2", refused)
	d.run(1, "drain web s2 --wait", refused)
	d.run(1, "remove web s2", refused)
	d.run(0, "drain s1", "nothing to do")
	d.run(0, "drain s2 --force", "version 3: vip web: drain s2", "note: VIP web: no server takes new connections now; undrain one")
	d.run(0, "undrain s1")
	d.write("[{name: s1, drain: true}, {name: s2, drain: true}]")
	d.run(0, "plan", "version 5: vip web: drain s1", "note: VIP web: no server takes new connections now; undrain one")
	d.run(0, "apply", "version 5: vip web: drain s1", "note: VIP web: no server takes new connections now; undrain one")
}

// TestMisnamed: a verb that names a machine which is no server says what it is, and what to
// do instead.
func TestMisnamed(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	for _, command := range []string{"drain lb1", "drain web lb1", "remove lb1", "weight lb1 3"} {
		d.run(1, command, "fairlead: lb1 is a balancer and no server of a VIP; it is not of tier two, which alone drains; to take it out of service stop `fairlead lb` there")
	}
	d.run(1, "undrain c1", "c1 is a controller and no server of a VIP")
	d.run(1, "drain nosuch", "no vip has a server nosuch")
}

// TestFileNamed: what is wrong with a file has its name, whoever finds it.
func TestFileNamed(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	text, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(filepath.Dir(d.file), "api")
	d.file = filepath.Join(filepath.Dir(d.file), "x.yaml")
	if err := os.WriteFile(d.file, append(text, "later: true\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"plan", "apply", "plan --api unix:" + socket, "apply --api unix:" + socket} {
		d.run(1, command, d.file+":", "later: unknown key")
	}
	if err := os.WriteFile(d.file, bytes.Replace(text, []byte("[s1, s2]"), []byte("[s1, {name: s2, weight: 3}]"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	d.run(0, "plan", "--- the configuration in the store\n+++ "+d.file+"\n")
}

// TestDescribe: a VIP and a server with what agents count and balancers see.
func TestDescribe(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	d.daemons["s2"].has(4)
	var r describeResult
	if err := json.Unmarshal([]byte(d.run(0, "describe web -o json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.VIPs) != 1 || len(r.VIPs[0].Slots) != 2 || len(r.Daemons) != 2 || r.Version != 1 {
		t.Fatalf("%+v", r)
	}
	s2 := r.VIPs[0].Slots[1]
	if s2.Connections == nil || *s2.Connections != 4 || len(s2.Health) != 2 || s2.Health[0].Daemon != "lb1" || s2.Health[1].Health != "up" {
		t.Errorf("%+v", s2)
	}
	d.run(0, "describe s2", "web: 192.0.2.1, port 80, tcp", "up at lb1, lb2", "agent of s2: goes by version 1 of 1")
	d.run(1, "describe nosuch", "nosuch is neither a VIP nor a server of one")
}

// TestGetConfig prints the store's text, and its objects without a secret.
func TestGetConfig(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	d.run(0, "drain s2")
	type object struct {
		Secret string `json:"secret" yaml:"secret"`
		VIPs   []struct {
			Name    string `json:"name" yaml:"name"`
			Servers []any  `json:"servers" yaml:"servers"`
		} `json:"vips" yaml:"vips"`
	}
	for output, parse := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal} {
		var o object
		if err := parse([]byte(d.run(0, "get config -o "+output)), &o); err != nil || o.Secret != "" || len(o.VIPs) != 1 || o.VIPs[0].Name != "web" || len(o.VIPs[0].Servers) != 2 {
			t.Errorf("%s: %+v, %v", output, o, err)
		}
	}
	if out := d.run(0, "get config"); strings.Contains(out, "secret") || !strings.Contains(out, "drain: true") {
		t.Error(out)
	}
	d.run(2, "get config -o xml", "must be")
}

// TestReload tells all, or those named, and says what each answers.
func TestReload(t *testing.T) {
	d := deploy(t)
	var r reloadResult
	if err := json.Unmarshal([]byte(d.run(0, "reload -o json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Daemons) != 6 || r.Daemons[5].Name != "c1" || r.Daemons[5].Role != "controller" || len(r.Daemons[0].Changed) != 1 {
		t.Errorf("%+v", r)
	}
	if out := d.run(0, "reload lb1 s2"); strings.Contains(out, "lb2") || !strings.Contains(out, "goes by what it read") {
		t.Error(out)
	}
	d.run(1, "reload nosuch", "nosuch: no such daemon; there are lb1, lb2, s1, s2, s3, c1")
	// The controller's own file is broken: it says so, and goes on by what it has.
	whole, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	socket := "unix:" + filepath.Join(filepath.Dir(d.file), "api")
	if err := os.WriteFile(d.file, append(whole, "later: true\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	client := namedControlAt(t, socket)
	if err := reloadAt(t, client); err == nil || !strings.Contains(err.Error(), "what was read before stays") || !strings.Contains(err.Error(), "later: unknown key") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(d.file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reloadAt(t, client); err != nil {
		t.Error(err)
	}
}

// TestStatusOfTheStore: status says who leads, and which daemon has something else than
// the store; a bootstrap alone is enough to know whom to ask.
func TestStatusOfTheStore(t *testing.T) {
	d := deploy(t)
	d.run(0, "apply")
	d.run(0, "status", "c1", "leads", "Version 1: in force at every daemon that lives.")
	whole, err := os.ReadFile(d.file)
	if err != nil {
		t.Fatal(err)
	}
	boot := bytes.Join(bytes.SplitAfter(whole, []byte("\n"))[:2], nil)
	if err := os.WriteFile(d.file, boot, 0o600); err != nil {
		t.Fatal(err)
	}
	d.run(0, "status", "lb2", "s3", "Version 1: in force")
	d.run(0, "reload s3")
	d.daemons["lb2"].other = true
	d.run(0, "status", "lb2: goes by another version 1 than the store has")
	var s struct {
		Differ bool `json:"digests_differ"`
		Store  struct {
			Version     uint64             `json:"version"`
			Controllers []controllerResult `json:"controllers"`
		} `json:"store"`
	}
	if err := json.Unmarshal([]byte(d.run(0, "status -o json")), &s); err != nil || !s.Differ || s.Store.Version != 1 || len(s.Store.Controllers) != 1 || !s.Store.Controllers[0].Leads {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestCertsFlags: who gets which certificate, and what stays behind.
func TestCertsFlags(t *testing.T) {
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "fairlead.yaml"), filepath.Join(dir, "certs")
	const text = `
secret_file: /nowhere/secret # it is on the machines
tls: {ca: ca.pem, cert: cert.pem, key: key.pem}
controllers: [{name: c1, store: "https://10.0.0.1:2379", api: "https://10.0.0.1:7444"}]
balancers: [{name: lb1, interfaces: [eth0], api: "https://10.0.0.1:7443"}]
servers: [{name: s1, address: 10.0.0.2, api: "https://10.0.0.2:7443"}]
vips: [{name: web, address: 192.0.2.1, port: 80, servers: [s1]}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		status, out, errs := clitest.Run(newRootCommand(), append([]string{"certs", folder, "-f", file}, args...)...)
		if status != want {
			t.Errorf("%q: exit status %d, want %d: %s%s", args, status, want, out, errs)
		}
		return out + errs
	}
	run(0)
	for _, name := range []string{"lb1", "s1", "c1"} {
		for _, f := range []string{"ca.pem", "cert.pem", "key.pem"} {
			if _, err := os.Stat(filepath.Join(folder, name, f)); err != nil {
				t.Error(err)
			}
		}
	}
	if out := run(0, "--user", "ann", "--role", "operate"); !strings.Contains(out, filepath.Join(folder, "ann")) {
		t.Error(out)
	}
	if out := run(1, "--user", "lb1", "--role", "view"); !strings.Contains(out, "a machine of") {
		t.Error(out)
	}
	run(2, "--user", "bob")
	run(2, "--user", "bob", "--role", "king")
	for _, name := range []string{"root@host", "uid 1000", "bob\n", "../bob"} {
		if out := run(2, "--user", name, "--role", "view"); !strings.Contains(out, "not a name") {
			t.Errorf("%q: %s", name, out)
		}
	}
	run(2, "--out", "x.tar")
	run(2, "--within", "5d")
	// An archive, and no key of it here.
	at := filepath.Join(dir, "eve.tar")
	run(0, "--user", "eve", "--role", "view", "--out", at)
	data, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
	}
	if strings.Join(names, " ") != "ca.pem cert.pem key.pem" {
		t.Errorf("the archive has %q", names)
	}
	if _, err := os.Stat(filepath.Join(folder, "eve", "key.pem")); err == nil {
		t.Error("eve's key stays behind")
	}
	if out := run(1, "--for", "nosuch"); !strings.Contains(out, "names no such daemon or controller") {
		t.Error(out)
	}
	// A user's ends within two years, a machine's does not.
	key, err := os.ReadFile(filepath.Join(folder, "ann", "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if out := run(0, "--renew"); !strings.Contains(out, "nothing to do") {
		t.Error(out)
	}
	if out := run(0, "--renew", "--within", "700d"); !strings.Contains(out, "copy it to ann") || strings.Contains(out, "lb1") {
		t.Error(out)
	}
	if after, err := os.ReadFile(filepath.Join(folder, "ann", "key.pem")); err != nil || !bytes.Equal(key, after) {
		t.Errorf("renewed, ann has another key (%v)", err)
	}
	run(2, "--renew", "--user", "ann", "--role", "view")
}

func namedControlAt(t *testing.T, endpoint string) controlClient {
	t.Helper()
	c, err := api.DialControl(endpoint, config.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reloadAt(t *testing.T, c controlClient) error {
	t.Helper()
	_, err := c.Reload(t.Context(), connect.NewRequest(&fairleadv1.ReloadRequest{}))
	return err
}
