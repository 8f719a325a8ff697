package daemon

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

// fakePlane is a plane in memory, so that whole daemons run in one test
// without root.
type fakePlane struct {
	mu      sync.Mutex
	base    *uint32
	applied *controller.Assignment
	refuse  error
	wake    chan struct{}
	applies int
	due     time.Time // what apply returns, once
	table   *fakeFlows
	pins    string // a folder for what is pinned; empty: the plane pins nothing
	// interfaces are those that describe tells of.
	interfaces []*fairleadv1.Interface
}

func (p *fakePlane) clockBase() (uint32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.base == nil {
		return 0, false
	}
	return *p.base, true
}

func (p *fakePlane) fixClock(base uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.base = &base
	return nil
}

func (p *fakePlane) apply(a *controller.Assignment) (due time.Time, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		return due, p.refuse
	}
	p.applied = a
	p.applies++
	due, p.due = p.due, time.Time{}
	return due, nil
}

func (p *fakePlane) flows() flowTable {
	if p.table == nil {
		return nil
	}
	return p.table
}

func (p *fakePlane) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.applies
}

func (p *fakePlane) run(ctx context.Context) error { <-ctx.Done(); return nil }
func (p *fakePlane) changed() <-chan struct{}      { return p.wake }
func (p *fakePlane) close() error                  { return nil }
func (p *fakePlane) live(*controller.Assignment) ([]*fairleadv1.LiveVIP, error) {
	return nil, nil
}

func (p *fakePlane) describe(_ *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	p.mu.Lock()
	s.PinDir, s.Interfaces = "/fake", p.interfaces
	p.mu.Unlock()
	s.Reasons = []*fairleadv1.Reason{{Name: "pass_no_vip", Packets: 3, Bytes: 180}}
	for _, v := range s.Vips {
		for _, slot := range v.Slots {
			slot.NextHop = &fairleadv1.NextHop{Resolved: true}
			slot.Health = fairleadv1.Health_HEALTH_UP
		}
	}
	return nil
}

// deployment is daemons of one file, each in its own goroutine.
type deployment struct {
	t      *testing.T
	dir    string
	cfg    *config.Config
	planes map[string]*fakePlane
	stops  map[string]func()
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	return newDeploymentOf(t, `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}
balancers:
  - {name: lb1, interfaces: [eth0], api: "https://127.0.0.1:%[2]d", metrics: "127.0.0.1:%[3]d"}
  - {name: lb2, interfaces: [eth0], api: "https://127.0.0.1:%[4]d", metrics: ""}
servers:
  - {name: s1, address: 10.0.0.21, interfaces: [eth0], api: "https://127.0.0.1:%[5]d", metrics: ""}
  - {name: s2, address: 10.0.0.22, interfaces: [eth0], api: "https://127.0.0.1:%[6]d", metrics: ""}
vips:
  - {name: web, address: 192.0.2.10, port: 80, servers: [s1, s2], health: {type: tcp}}
`)
}

// newDeploymentOf has the file of format, whose first argument is its folder
// and the next five free ports.
func newDeploymentOf(t *testing.T, format string) *deployment {
	t.Helper()
	d := &deployment{t: t, dir: t.TempDir(), planes: map[string]*fakePlane{}, stops: map[string]func(){}}
	d.certificates()
	var ports [6]int
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		defer l.Close()
	}
	file := fmt.Sprintf(format, d.dir, ports[0], ports[1], ports[2], ports[3], ports[4])
	path := filepath.Join(d.dir, "fairlead.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	d.cfg = cfg
	t.Cleanup(d.stopAll)
	return d
}

// certificates makes one CA and one certificate that all daemons share.
func (d *deployment) certificates() {
	d.t.Helper()
	check := func(err error) {
		if err != nil {
			d.t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fairlead test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(err)
	der, err := x509.MarshalECPrivateKey(key)
	check(err)
	write := func(name, kind string, data []byte) {
		check(os.WriteFile(filepath.Join(d.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
	}
	write("ca.pem", "CERTIFICATE", cert)
	write("cert.pem", "CERTIFICATE", cert)
	write("key.pem", "EC PRIVATE KEY", der)
}

// start runs a daemon over the plane of its name, which outlives it as pinned
// maps do, and waits until it serves.
func (d *deployment) start(role Role, name string) {
	d.t.Helper()
	p := d.planes[name]
	if p == nil {
		p = &fakePlane{wake: make(chan struct{}, 1)}
		d.planes[name] = p
	}
	d.startWith(role, name, func(self, *config.Config, Options, *slog.Logger) (plane, error) { return p, nil })
}

// startWith is start with what the daemon opens.
func (d *deployment) startWith(role Role, name string, open func(self, *config.Config, Options, *slog.Logger) (plane, error)) {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, role, Options{
			File: d.cfg.File(), Name: name, StateDir: filepath.Join(d.dir, "state"), Log: slog.New(slog.DiscardHandler),
			open: open,
		})
	}()
	stopped := false
	d.stops[name] = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("%s: %v", name, err)
		}
	}
	d.eventually(name+" serves", func() bool {
		select {
		case err := <-done:
			d.t.Fatalf("%s ended: %v", name, err)
		default:
		}
		_, err := d.try(name)
		return err == nil
	})
}

func (d *deployment) endpoint(name string) string {
	if b, ok := d.cfg.Balancer(name); ok {
		return b.API
	}
	if s, ok := d.cfg.Switch(name); ok {
		return s.API
	}
	s, _ := d.cfg.Server(name)
	return s.API
}

func (d *deployment) try(name string) (*fairleadv1.GetStatusResponse, error) {
	c, err := api.Dial(d.endpoint(name), d.cfg.TLS)
	if err != nil {
		return nil, err
	}
	s, err := c.GetStatus(d.t.Context(), connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return s.Msg, nil
}

func (d *deployment) status(name string) *fairleadv1.GetStatusResponse {
	d.t.Helper()
	s, err := d.try(name)
	if err != nil {
		d.t.Fatalf("status of %s: %v", name, err)
	}
	return s
}

func (d *deployment) eventually(what string, ok func() bool) {
	d.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			d.t.Fatalf("not in time: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (d *deployment) client(name string) (c interface {
	DrainServer(context.Context, *connect.Request[fairleadv1.DrainServerRequest]) (*connect.Response[fairleadv1.ChangeResponse], error)
	SetAssignment(context.Context, *connect.Request[fairleadv1.SetAssignmentRequest]) (*connect.Response[fairleadv1.SetAssignmentResponse], error)
	GetAssignment(context.Context, *connect.Request[fairleadv1.GetAssignmentRequest]) (*connect.Response[fairleadv1.GetAssignmentResponse], error)
}) {
	d.t.Helper()
	c, err := api.Dial(d.endpoint(name), d.cfg.TLS)
	if err != nil {
		d.t.Fatal(err)
	}
	return c
}

// Four daemons over mutual TLS: one clock, one assignment, changes reach all,
// one that was away catches up, and state survives.
func TestDeployment(t *testing.T) {
	d := newDeployment(t)
	all := []string{"s1", "s2", "lb1", "lb2"}
	for i, name := range all {
		d.start([]Role{RoleHost, RoleHost, RoleBalancer, RoleBalancer}[i], name)
	}
	if s := d.status("s1"); s.Clock.Source != "wall" {
		t.Errorf("the first daemon's clock comes from %s", s.Clock.Source)
	}
	base := d.status("s1").Clock.BaseMs
	for _, name := range all[1:] {
		s := d.status(name)
		if diff := int32(s.Clock.BaseMs - base); s.Clock.Source != "peers" || diff < -500 || diff > 500 {
			t.Errorf("%s: clock from %s, %d ms from s1's", name, s.Clock.Source, diff)
		}
	}
	drain := &fairleadv1.DrainServerRequest{Vip: "web", Server: "s1"}
	if _, err := d.client("lb2").DrainServer(t.Context(), connect.NewRequest(drain)); err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if v := d.status(name).AssignmentVersion; v != 2 {
			t.Errorf("%s has version %d", name, v)
		}
	}
	// lb1 is away while s2 drains too.
	d.stops["lb1"]()
	drain.Server = "s2"
	if _, err := d.client("s1").DrainServer(t.Context(), connect.NewRequest(drain)); err != nil {
		t.Fatal(err)
	}
	d.start(RoleBalancer, "lb1")
	if s := d.status("lb1"); s.AssignmentVersion != 3 || s.Clock.Source != "pinned" {
		t.Errorf("lb1 came back with version %d, clock %s", s.AssignmentVersion, s.Clock.Source)
	}
	// What the plane refuses is neither in force nor on disk.
	d.planes["lb1"].mu.Lock()
	d.planes["lb1"].refuse = os.ErrInvalid
	d.planes["lb1"].mu.Unlock()
	held, err := d.client("lb1").GetAssignment(t.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	next, err := controller.Decode(held.Msg.Assignment)
	if err != nil {
		t.Fatal(err)
	}
	next.Version++
	set := func(a *controller.Assignment, expected uint64) error {
		_, err := d.client("lb1").SetAssignment(t.Context(), connect.NewRequest(&fairleadv1.SetAssignmentRequest{
			Assignment: a.Encode(), ExpectedVersion: expected}))
		return err
	}
	if err := set(next, 3); err == nil {
		t.Error("an assignment that the plane refuses was accepted")
	}
	if s := d.status("lb1"); s.AssignmentVersion != 3 {
		t.Errorf("version %d in force after a refusal", s.AssignmentVersion)
	}
	onDisk, err := ReadAssignment(filepath.Join(d.dir, "state"), "lb1")
	if err != nil || string(onDisk.Encode()) != string(held.Msg.Assignment) {
		t.Errorf("on disk after a refusal: %v", err)
	}
	d.planes["lb1"].mu.Lock()
	d.planes["lb1"].refuse = nil
	d.planes["lb1"].mu.Unlock()
	// Compare and set: the wrong expectation, then the right one, then again.
	if err := set(next, 2); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("wrong expectation: %v", err)
	}
	if err := set(next, 3); err != nil {
		t.Error(err)
	}
	if err := set(next, 3); err != nil {
		t.Errorf("the same again: %v", err)
	}
	// A change of health applies the assignment again.
	before := d.planes["lb1"].count()
	d.planes["lb1"].wake <- struct{}{}
	d.eventually("the plane is applied again", func() bool { return d.planes["lb1"].count() > before })
}

// Without a certificate of the deployment's CA nobody is answered.
func TestStrangersAreRefused(t *testing.T) {
	d := newDeployment(t)
	d.start(RoleBalancer, "lb1")
	stranger := newDeployment(t) // other keys
	c, err := api.Dial(d.endpoint("lb1"), config.TLS{CA: d.cfg.TLS.CA, Cert: stranger.cfg.TLS.Cert, Key: stranger.cfg.TLS.Key})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetAssignment(t.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{})); err == nil {
		t.Fatal("a stranger was given the keys")
	}
}

// The metrics keep to Prometheus's conventions, and show what status shows.
func TestMetrics(t *testing.T) {
	d := newDeployment(t)
	d.start(RoleBalancer, "lb1")
	b, _ := d.cfg.Balancer("lb1")
	resp, err := http.Get("http://" + *b.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	problems, err := promlint.New(io.TeeReader(resp.Body, &text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "fairlead_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, want := range []string{
		`fairlead_assignment_version 1`,
		`fairlead_packets_total{reason="pass_no_vip"} 3`,
		`fairlead_server_state{server="s1",slot="0",state="active",vip="web"} 1`,
		`fairlead_server_up{server="s2",slot="1",vip="web"} 1`,
		`process_start_time_seconds`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	// lb2 is not there, and not waited for.
	d.eventually("/ready says yes", func() bool {
		resp, err := http.Get("http://" + *b.Metrics + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// An assignment on disk that this build does not read is refused before anything in
// the kernel is replaced.
func TestRefusesAssignmentFirst(t *testing.T) {
	d := newDeployment(t)
	state := filepath.Join(d.dir, "state")
	s, err := openState(state, "lb1", slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.save([]byte(`{"future": 1}`), true)
		s.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = run(t.Context(), RoleBalancer, Options{
		File: d.cfg.File(), Name: "lb1", StateDir: state, Log: slog.New(slog.DiscardHandler),
		open: func(self, *config.Config, Options, *slog.Logger) (plane, error) {
			t.Error("the kernel was touched")
			return nil, errors.New("touched")
		},
	})
	if err == nil || !strings.Contains(err.Error(), "after fairlead unload") {
		t.Errorf("%v", err)
	}
}

// Daemons that start together agree on one clock: one of them reads the wall
// clock, the others wait for it.
func TestColdStart(t *testing.T) {
	d := newDeployment(t)
	all := map[string]Role{"s1": RoleHost, "s2": RoleHost, "lb1": RoleBalancer, "lb2": RoleBalancer}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var delay time.Duration
	for name, role := range all {
		p := &fakePlane{wake: make(chan struct{}, 1)}
		delay += 60 * time.Millisecond
		opening := delay // loading programs takes one longer than another
		wg.Go(func() {
			err := run(ctx, role, Options{
				File: d.cfg.File(), Name: name, StateDir: filepath.Join(d.dir, "state"), Log: slog.New(slog.DiscardHandler),
				open: func(self, *config.Config, Options, *slog.Logger) (plane, error) {
					time.Sleep(opening)
					return p, nil
				},
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	sources := map[string]int{}
	for name := range all {
		d.eventually(name+" serves", func() bool { _, err := d.try(name); return err == nil })
		s := d.status(name)
		sources[s.Clock.Source]++
		if len(s.Warnings) > 0 && strings.Contains(strings.Join(s.Warnings, "\n"), "no peer answered") {
			// Only the one that was first may have been alone, and not for long.
			d.eventually(name+" hears a peer", func() bool {
				return !strings.Contains(strings.Join(d.status(name).Warnings, "\n"), "no peer answered")
			})
		}
	}
	if sources["wall"] != 1 || sources["peers"] != len(all)-1 {
		t.Errorf("clocks come from %v, want one from the wall clock", sources)
	}
}
