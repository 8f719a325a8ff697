package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/ctl"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// miniDaemon answers the API on its socket and keeps its assignment in
// memory: a daemon without a kernel.
type miniDaemon struct {
	fairleadv1connect.UnimplementedFairleadHandler
	mu   sync.Mutex
	cur  *controller.Assignment
	live []*fairleadv1.LiveVIP

	name  string
	kind  rollout.Kind
	other bool // it says that it has another assignment
}

func (d *miniDaemon) GetAssignment(context.Context, *connect.Request[fairleadv1.GetAssignmentRequest]) (*connect.Response[fairleadv1.GetAssignmentResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return connect.NewResponse(&fairleadv1.GetAssignmentResponse{Assignment: d.cur.Encode(), Version: d.cur.Version}), nil
}

// follow goes by the store until ctx ends.
func (d *miniDaemon) follow(ctx context.Context, cfg *config.Config, name string, kind rollout.Kind) {
	s, l, err := rollout.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return
	}
	defer s.Close()
	for ctx.Err() == nil {
		lease, err := s.Grant(ctx, time.Minute)
		for head, headErr := range l.Heads(ctx) {
			var next *controller.Assignment
			if err = errors.Join(err, headErr); err == nil && head.Of(int(kind)) > 0 {
				next, err = l.Read(ctx, head.Of(int(kind)), nil)
			}
			if err != nil {
				break
			}
			d.mu.Lock()
			if next != nil {
				d.cur = next
			}
			digest := d.cur.Digest()
			r := ledger.Report{Kind: int(kind), Version: d.cur.Version, Digest: hex.EncodeToString(digest[:])}
			d.mu.Unlock()
			if _, err = l.Say(ctx, lease, name, r); err != nil {
				break
			}
		}
	}
}

func (d *miniDaemon) GetLive(context.Context, *connect.Request[fairleadv1.GetLiveRequest]) (*connect.Response[fairleadv1.GetLiveResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return connect.NewResponse(&fairleadv1.GetLiveResponse{Vips: d.live}), nil
}

// GetServing: what buckets it owns connections of; it has no VIP of that kind.
func (d *miniDaemon) GetServing(context.Context, *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	return connect.NewResponse(&fairleadv1.GetServingResponse{}), nil
}

// has is that connections of VIP 1 are live there.
func (d *miniDaemon) has(connections uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.live = nil
	if connections > 0 {
		d.live = []*fairleadv1.LiveVIP{{Id: 1, Epochs: []*fairleadv1.EpochLive{{Epoch: 0, Connections: connections}}}}
	}
}

// GetStatus is as much as a daemon without a kernel knows.
func (d *miniDaemon) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	digest := d.cur.Digest()
	s := &fairleadv1.GetStatusResponse{Name: d.name, Role: fairleadv1.Role_ROLE_HOST, AssignmentVersion: d.cur.Version, AssignmentDigest: digest[:]}
	if d.other {
		s.AssignmentDigest[0]++
	}
	if d.kind != rollout.Balancer {
		return connect.NewResponse(s), nil
	}
	s.Role = fairleadv1.Role_ROLE_BALANCER
	for _, v := range d.cur.VIPs {
		out := &fairleadv1.VIP{Id: v.ID, Name: v.Name, Address: v.Address.String(), Port: uint32(v.Port), Protocol: v.Protocol}
		for _, slot := range v.Slots {
			out.Slots = append(out.Slots, &fairleadv1.Slot{Number: uint32(slot.Number), Server: slot.Server, Health: fairleadv1.Health_HEALTH_UP})
		}
		s.Vips = append(s.Vips, out)
	}
	return connect.NewResponse(s), nil
}

// Reload has nothing to read.
func (d *miniDaemon) Reload(context.Context, *connect.Request[fairleadv1.ReloadRequest]) (*connect.Response[fairleadv1.ReloadResponse], error) {
	return connect.NewResponse(&fairleadv1.ReloadResponse{Changed: []string{"what it read"}}), nil
}

// deployment is a file and the daemons that it names, lb1, lb2 and s1 to s3,
// on sockets in a folder of the test. Servers in the pool: s1, s2.
type deployment struct {
	t       *testing.T
	file    string
	daemons map[string]*miniDaemon
}

func deploy(t *testing.T) *deployment {
	// t.TempDir() may be longer than a socket's path may be.
	dir, err := os.MkdirTemp("", "fl-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &deployment{t: t, file: filepath.Join(dir, "fairlead.yaml"), daemons: map[string]*miniDaemon{}}
	d.write("[s1, s2]")
	cfg, err := config.Load(d.file)
	if err != nil {
		t.Fatal(err)
	}
	first, err := controller.First(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() { cancel(); work.Wait() })
	work.Go(func() {
		err := ctl.Run(ctx, ctl.Options{File: d.file, StateDir: filepath.Join(dir, "state"), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Error(err)
		}
	})
	for name, kind := range map[string]rollout.Kind{"lb1": rollout.Balancer, "lb2": rollout.Balancer, "s1": rollout.Host, "s2": rollout.Host, "s3": rollout.Host} {
		m := &miniDaemon{cur: first, name: name, kind: kind}
		work.Go(func() { m.follow(ctx, cfg, name, kind) })
		d.daemons[name] = m
		listener, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle(fairleadv1connect.NewFairleadHandler(m))
		server := &http.Server{Handler: mux}
		go server.Serve(listener)
		t.Cleanup(func() { server.Close() })
	}
	d.await()
	return d
}

// await waits until the controller answers.
func (d *deployment) await() {
	d.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, out, errs := clitest.Run(newRootCommand(), "get", "controllers", "-f", d.file)
		if status == 0 {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("the controller does not answer: %s%s", out, errs)
		}
	}
}

func (d *deployment) write(pool string) {
	dir := filepath.Dir(d.file)
	text := "secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n" +
		fmt.Sprintf("controllers: [{name: c1, api: 'unix:%[1]s/api', store: 'unix:%[1]s/store'}]\n", dir) + "balancers:\n"
	for i := range 2 {
		text += fmt.Sprintf("- {name: lb%d, interfaces: [eth0], api: 'unix:%s/lb%d'}\n", i+1, dir, i+1)
	}
	text += "servers:\n"
	for i := range 3 {
		text += fmt.Sprintf("- {name: s%d, address: 10.0.1.%d, api: 'unix:%s/s%d'}\n", i+1, i+1, dir, i+1)
	}
	text += "vips: [{name: web, address: 192.0.2.1, port: 80, policy: wrr, servers: " + pool + "}]\n"
	if err := os.WriteFile(d.file, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// run runs the program, wants its status and all of parts in what it prints.
func (d *deployment) run(status int, command string, parts ...string) (stdout string) {
	d.t.Helper()
	got, out, errs := clitest.Run(newRootCommand(), append(strings.Fields(command), "-f", d.file)...)
	if got != status {
		d.t.Errorf("%s: exit status %d, want %d\n%s%s", command, got, status, out, errs)
	}
	for _, p := range parts {
		if !strings.Contains(out+errs, p) {
			d.t.Errorf("%s: prints no %q:\n%s%s", command, p, out, errs)
		}
	}
	return out
}

// TestDesiredState: apply makes the file the desired state, verbs change it, and
// rollback takes that back.
func TestDesiredState(t *testing.T) {
	d := deploy(t)
	d.run(1, "get config", "the store has no configuration yet")
	d.run(0, "apply", "nothing to do") // what daemons have comes into the store, and the file
	d.run(0, "weight web s2 5", "version 2: vip web: s2: weight 5, was 1")
	if out := d.run(0, "get config"); !strings.Contains(out, "servers: [s1, {name: s2, weight: 5}]") || strings.Contains(out, "secret:") {
		t.Error(out)
	}
	d.run(0, "plan", "note: planned on version 2", "-    weight: 5\n", "version 3: vip web: s2: weight 1, was 5")
	d.run(1, "apply --expect 1", "planned on version 1, and the newest is 2", "vip web: s2: weight 5, was 1",
		"--- fairlead.yaml of version 1, which it was planned on\n", "+++ fairlead.yaml of version 2, the newest\n", "+    weight: 5")
	d.run(0, "rollback 1", "version 3: vip web: s2: weight 1, was 5")
	d.run(0, "apply --expect 3", "nothing to do")
	d.run(0, "history", "rollback to version 1")
	d.run(1, "rollback 9", "the store does not have what was wanted then")
}

// TestChanges goes through every command that changes, over real sockets.
func TestChanges(t *testing.T) {
	d := deploy(t)
	d.run(0, "plan", "nothing to do", "(version 1)")
	d.run(0, "add web s3 --weight 4", "version 2: vip web: add s3 in slot 2 (10.0.1.3, weight 4)", "version 3: vip web: s3 (slot 2) takes new connections")
	d.run(1, "add web s3", "s3 is in it already")
	d.run(0, "weight web s3 5", "version 4: vip web: s3: weight 5, was 4")
	d.run(0, "drain s3", "version 5: vip web: drain s3")
	d.run(0, "drain s3", "nothing to do: it is so already (version 5)")
	d.run(0, "drain s3 -o json", `"daemons": true`)
	d.run(0, "undrain web s3", "takes new connections again")
	d.run(0, "rotate", "key of epoch 1", "stamped under epoch 1")
	d.run(1, "drain nosuch s1", "fairlead: no vip nosuch; there are web\n")

	d.daemons["s3"].live = []*fairleadv1.LiveVIP{{Id: 1, Epochs: []*fairleadv1.EpochLive{{Epoch: 0, Connections: 2}}}}
	d.run(1, "remove web s3", "fairlead: vip web: s3: it would be removed, but 2 connections are live; drain it and wait until they end, or --force\n")
	d.run(1, "rotate", "2 connections are still live under epoch 0")
	d.run(1, "apply", "s3: it would be removed, but 2 connections are live")
	var no changeResult
	if err := json.Unmarshal([]byte(d.run(1, "plan -o json", "fairlead: vip web: s3: it would be removed")), &no); err != nil {
		t.Fatal(err)
	}
	if !no.Daemons || no.From != no.To || no.From == 0 || len(no.Refused) != 1 || no.Changes == nil || no.Notes == nil {
		t.Errorf("refused: %+v", no)
	}
	if out := d.run(1, "apply -o yaml"); !strings.Contains(out, "refused:\n- ") {
		t.Errorf("apply, refused: %s", out)
	}
	d.run(0, "remove web s3 --force", "slot 2 rests until")

	// The file again: everything back, as JSON.
	d.write("[s1, {name: s2, drain: true}, s3]")
	var r changeResult
	if err := json.Unmarshal([]byte(d.run(0, "apply -o json")), &r); err != nil {
		t.Fatal(err)
	}
	if !r.Daemons || r.From != 10 || r.To != 11 || len(r.Changes) != 2 || r.Unanswered == nil || r.Notes == nil {
		t.Errorf("%+v", r)
	}
	for name, m := range d.daemons {
		if m.cur.Version != 11 {
			t.Errorf("%s has version %d", name, m.cur.Version)
		}
	}
	d.run(0, "plan -o yaml", "from: 11", "to: 11")
	d.run(0, "undrain s2", "s2 (slot 1) takes new connections again")
	d.run(1, "undrain s2 --without lb9", "without lb9: neither the file nor version 12 names such a daemon")

	d.daemons["s3"].live = nil
	d.run(0, "remove web s3", "slot 2 rests until")
	d.run(0, "add web s3 --standby", "version 15: vip web: s3 is back in slot 2, which rested (10.0.1.3, weight 1), as a standby")
	d.run(1, "add web s3", "fairlead: vip web: s3 is in it as a standby; `fairlead undrain` sets it to work, `fairlead add --standby --agent` changes where its agent is\n")
	d.run(1, "drain web s3", "s3 is a standby and gets no connections")
	d.run(0, "undrain web s3", "version 16: vip web: s3 (slot 2), a standby, takes new connections")
}

// TestCertsWork: a daemon and a client with what certs makes trust each
// other, and nobody else's client is let in.
func TestCertsWork(t *testing.T) {
	folder := t.TempDir()
	tlsOf := func(folder, name string) config.TLS {
		a, err := certs.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Issue(certs.Subject{Name: name, Endpoints: []string{"https://127.0.0.1:1"}}); err != nil {
			t.Fatal(err)
		}
		at := func(f string) string { return filepath.Join(folder, name, f) }
		return config.TLS{CA: at("ca.pem"), Cert: at("cert.pem"), Key: at("key.pem")}
	}
	server := tlsOf(folder, "lb1")
	pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(server.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewFairleadHandler(fairleadv1connect.UnimplementedFairleadHandler{}))
	s := httptest.NewUnstartedServer(mux)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ask := func(c config.TLS) error {
		client, err := api.Dial(s.URL, c)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.GetTime(t.Context(), connect.NewRequest(&fairleadv1.GetTimeRequest{}))
		return err
	}
	if err := ask(tlsOf(folder, "s1")); connect.CodeOf(err) != connect.CodeUnimplemented {
		t.Errorf("a daemon of the deployment: %v", err)
	}
	if err := ask(tlsOf(t.TempDir(), "s1")); err == nil || connect.CodeOf(err) == connect.CodeUnimplemented {
		t.Errorf("a stranger: %v", err)
	}
}
