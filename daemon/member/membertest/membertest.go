// Package membertest runs whole deployments in one test, without root: daemons over
// planes in memory, with real sockets and state on disk.
package membertest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/bgp/bgptest"
	"github.com/fairlead/fairlead/bgp/gobgp"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/l2"
	"github.com/fairlead/fairlead/l2/l2test"
	"github.com/fairlead/fairlead/l2/segment"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/wire"
)

// Plane is one in memory, with a clock as in pinned maps. It outlives its daemon, as
// they do. The lock is for its fields while a daemon runs.
type Plane struct {
	sync.Mutex
	Base    *uint32
	Applied *controller.Assignment
	Refuse  error // what Apply returns
	Wake    chan struct{}
	Pins    string // a folder for what is pinned; empty: the plane pins nothing
	// Interfaces are those that Describe tells of.
	Interfaces []*fairleadv1.Interface
	Down       bool // it tells of servers that none is well
	applies    int
}

// NewPlane is one that pins in pins.
func NewPlane(pins string) *Plane { return &Plane{Wake: make(chan struct{}, 1), Pins: pins} }

// Opened is what a role that has no more opens.
func (p *Plane) Opened() member.Opened {
	return member.Opened{Plane: p, Clock: p, PinDir: p.Pins, Changed: p.Wake}
}

// ClockBase implements member.Clock.
func (p *Plane) ClockBase() (uint32, bool) {
	p.Lock()
	defer p.Unlock()
	if p.Base == nil {
		return 0, false
	}
	return *p.Base, true
}

// SetClock implements member.Clock.
func (p *Plane) SetClock(shared func() uint32) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	return p.RestoreClock(shared() - uint32(now.Sec*1000+now.Nsec/1e6))
}

// RestoreClock implements member.Clock.
func (p *Plane) RestoreClock(base uint32) error {
	p.Lock()
	defer p.Unlock()
	p.Base = &base
	return nil
}

// Apply implements member.Plane.
func (p *Plane) Apply(a *controller.Assignment) (due time.Time, err error) {
	p.Lock()
	defer p.Unlock()
	if p.Refuse != nil {
		return due, p.Refuse
	}
	p.Applied = a
	p.applies++
	return due, nil
}

// Applies is how often an assignment was applied.
func (p *Plane) Applies() int {
	p.Lock()
	defer p.Unlock()
	return p.applies
}

// Run implements member.Plane.
func (p *Plane) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Close implements member.Plane.
func (p *Plane) Close() error { return nil }

// Describe implements member.Plane.
func (p *Plane) Describe(_ *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	p.Lock()
	s.PinDir, s.Interfaces = "/fake", p.Interfaces
	health := fairleadv1.Health_HEALTH_UP
	if p.Down {
		health = fairleadv1.Health_HEALTH_DOWN
	}
	p.Unlock()
	s.Reasons = []*fairleadv1.Reason{{Name: "pass_no_vip", Packets: 3, Bytes: 180}}
	for _, v := range s.Vips {
		for _, slot := range v.Slots {
			slot.NextHop = &fairleadv1.NextHop{Resolved: true}
			slot.Health = health
		}
	}
	return nil
}

// Role is one that has nothing of its own, on what open opens.
func Role(is config.Role, open func(*member.Member) (member.Opened, error)) member.Role {
	r := member.Role{
		Is: is, Status: fairleadv1.Role_ROLE_BALANCER, What: "a balancer", Routed: true, Counts: true, OwnTimes: true,
		Concerns: func(*controller.VIP, string) bool { return true },
		Fixed:    func(config.Self) []member.Setting { return nil },
		Service:  func(m *member.Member) fairleadv1connect.FairleadHandler { return member.Service{Member: m} },
		Emit:     func(daemon.Emitter, *fairleadv1.GetStatusResponse) {},
		Open:     open,
	}
	if is == config.RoleHost {
		r.Status, r.What, r.Routed, r.OwnTimes = fairleadv1.Role_ROLE_HOST, "a host's agent", false, false
	}
	return r
}

// Deployment is daemons of one file, each in its own goroutine.
type Deployment struct {
	T      *testing.T
	Dir    string
	Config *config.Config
	Planes map[string]*Plane
	Stops  map[string]func()
	// Memory is the store, and Links each daemon's way to it, since it was last
	// started. Where it is Away, daemons are started without it.
	Memory *store.Memory
	Links  map[string]*store.MemoryClient
	Away   bool
	links  sync.Mutex
	// Speaker is what daemons that announce speak by, Ether where those are that hold
	// addresses.
	Speaker *bgptest.Speaker
	Ether   l2test.Ether
}

// New has two balancers and two servers, and the file's version in the store.
func New(t *testing.T) *Deployment {
	t.Helper()
	return NewOf(t, twoOfEach)
}

// NewEmpty is New with nothing in the store.
func NewEmpty(t *testing.T) *Deployment {
	t.Helper()
	return newOf(t, twoOfEach)
}

const twoOfEach = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
controllers: [{name: c1, store: "https://127.0.0.1:2379"}]
tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}
balancers:
  - {name: lb1, interfaces: [eth0], api: "https://127.0.0.1:%[2]d", metrics: "127.0.0.1:%[3]d"}
  - {name: lb2, interfaces: [eth0], api: "https://127.0.0.1:%[4]d", metrics: ""}
servers:
  - {name: s1, address: 10.0.0.21, interfaces: [eth0], api: "https://127.0.0.1:%[5]d", metrics: ""}
  - {name: s2, address: 10.0.0.22, interfaces: [eth0], api: "https://127.0.0.1:%[6]d", metrics: ""}
vips:
  - {name: web, address: 192.0.2.10, port: 80, servers: [s1, s2], health: {type: tcp}}
`

// deployments counts those of this process.
var deployments atomic.Uint32

// NewOf has the file of format, whose first argument is its folder and the next
// five free ports. Its 127.0.0.1 becomes an address of the deployment alone, so
// that nobody takes a port while its daemon is not running.
func NewOf(t *testing.T, format string) *Deployment {
	t.Helper()
	d := newOf(t, format)
	a, err := controller.First(d.Config)
	if err != nil {
		t.Fatal(err)
	}
	d.Agree(nil, a)
	return d
}

func newOf(t *testing.T, format string) *Deployment {
	t.Helper()
	d := &Deployment{T: t, Dir: t.TempDir(), Planes: map[string]*Plane{}, Stops: map[string]func(){},
		Memory: store.NewMemory(), Links: map[string]*store.MemoryClient{}}
	pid := os.Getpid()
	address := net.IPv4(127, byte(1+deployments.Add(1)%250), byte(pid>>8), byte(pid))
	daemontest.Certificates(t, d.Dir, address)
	var ports [6]int
	for i := range ports {
		l, err := net.Listen("tcp", address.String()+":0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		defer l.Close()
	}
	file := fmt.Sprintf(format, d.Dir, ports[0], ports[1], ports[2], ports[3], ports[4])
	file = strings.ReplaceAll(file, "127.0.0.1", address.String())
	path := filepath.Join(d.Dir, "fairlead.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	d.Config = cfg
	t.Cleanup(d.StopAll)
	return d
}

// Plane is that of the daemon called name.
func (d *Deployment) Plane(name string) *Plane {
	if d.Planes[name] == nil {
		d.Planes[name] = NewPlane("")
	}
	return d.Planes[name]
}

// Start runs a daemon over the plane of its name and waits until it serves.
func (d *Deployment) Start(is config.Role, name string) {
	d.T.Helper()
	d.StartRole(d.Role(is, name), name)
}

// Role is that of the daemon called name, over the plane of its name.
func (d *Deployment) Role(is config.Role, name string) member.Role {
	p := d.Plane(name)
	return Role(is, func(*member.Member) (member.Opened, error) { return p.Opened(), nil })
}

// BeginAll begins the daemons of New; what it returns waits until they serve.
func (d *Deployment) BeginAll() (serve func()) {
	var all []func()
	for name, is := range map[string]config.Role{"s1": config.RoleHost, "s2": config.RoleHost, "lb1": config.RoleBalancer, "lb2": config.RoleBalancer} {
		all = append(all, d.Begin(d.Role(is, name), name))
	}
	return func() {
		d.T.Helper()
		for _, serves := range all {
			serves()
		}
	}
}

// StartAll starts the daemons of New.
func (d *Deployment) StartAll() {
	d.T.Helper()
	for _, name := range []string{"s1", "s2"} {
		d.Start(config.RoleHost, name)
	}
	for _, name := range []string{"lb1", "lb2"} {
		d.Start(config.RoleBalancer, name)
	}
}

// Options are those that the daemon called name is started with; its file is its own
// (NAME.yaml), if there is one.
func (d *Deployment) Options(name string) member.Options {
	file := d.Config.File()
	if own := filepath.Join(d.Dir, name+".yaml"); fileExists(own) {
		file = own
	}
	return member.Options{File: file, Name: name, StateDir: d.State(), Log: slog.New(slog.DiscardHandler), OpenStore: d.openStore(name),
		OpenSpeaker: func(gobgp.Options) (bgp.Speaker, error) { return d.Speaker, nil },
		OpenWire: func(o segment.Options) (l2.Wire, error) {
			return d.Ether.Plug(wire.MAC{2, 0, 0, 0, 0, name[len(name)-1]}, o.Holds, o.Heard), nil
		}}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// openStore has the daemon called name reach the store.
func (d *Deployment) openStore(name string) func(*config.Config, *slog.Logger) (store.Store, *ledger.Ledger, error) {
	return func(*config.Config, *slog.Logger) (store.Store, *ledger.Ledger, error) {
		d.links.Lock()
		defer d.links.Unlock()
		d.Links[name] = d.Memory.Client()
		d.Links[name].Cut(d.Away && name != operator)
		l, err := ledger.New(d.Links[name], d.Config.SecretBytes())
		return d.Links[name], l, err
	}
}

// Cut takes the store away from daemons, or gives it back.
func (d *Deployment) Cut(cut bool, names ...string) {
	d.links.Lock()
	defer d.links.Unlock()
	for _, name := range names {
		d.Links[name].Cut(cut)
	}
}

// Coordinator is an operator's.
func (d *Deployment) Coordinator() *rollout.Coordinator {
	d.T.Helper()
	_, l, err := d.openStore(operator)(nil, nil)
	if err != nil {
		d.T.Fatal(err)
	}
	return &rollout.Coordinator{Config: func() *config.Config { return d.Config }, Ledger: l, Who: "an operator"}
}

// Text is the deployment's file.
func (d *Deployment) Text() []byte {
	d.T.Helper()
	text, err := os.ReadFile(d.Config.File())
	if err != nil {
		d.T.Fatal(err)
	}
	return text
}

const operator = "operator"

// Drain has an operator drain a server of web, whoever else is away.
func (d *Deployment) Drain(server string, without ...string) error {
	d.T.Helper()
	_, err := d.Coordinator().Do(d.T.Context(), rollout.Options{Without: without}, controller.Op{Kind: controller.Drain, VIP: "web", Server: server})
	return err
}

// Undrain takes that back.
func (d *Deployment) Undrain(server string) error {
	d.T.Helper()
	_, err := d.Coordinator().Do(d.T.Context(), rollout.Options{}, controller.Op{Kind: controller.Undrain, VIP: "web", Server: server})
	return err
}

// Agree puts a version into the store, after before, which is its newest; nil: it has
// none. Nobody is waited for.
func (d *Deployment) Agree(before, a *controller.Assignment) {
	d.T.Helper()
	l := d.Coordinator().Ledger
	head, err := l.Head(d.T.Context())
	if err == nil {
		head, err = l.Append(d.T.Context(), head, before, a, ledger.Change{Who: "somebody"})
	}
	if err == nil {
		_, err = l.Turn(d.T.Context(), head, 3)
	}
	if err != nil {
		d.T.Fatal(err)
	}
}

// State is the folder of the daemons' state.
func (d *Deployment) State() string { return filepath.Join(d.Dir, "state") }

// File is a file of a daemon's state.
func (d *Deployment) File(name, file string) string { return filepath.Join(d.State(), name, file) }

// StartRole is Start of any role.
func (d *Deployment) StartRole(r member.Role, name string) {
	d.T.Helper()
	d.Begin(r, name)()
}

// Begin starts a daemon; what it returns waits until it serves.
func (d *Deployment) Begin(r member.Role, name string) (serves func()) {
	return d.BeginAs(d.Options(name), r, name)
}

// BeginAs is Begin with options of the caller's.
func (d *Deployment) BeginAs(o member.Options, r member.Role, name string) (serves func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- member.Run(ctx, o, r)
		close(done) // whoever comes second is not told why
	}()
	stopped := false
	d.Stops[name] = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			d.T.Errorf("%s: %v", name, err)
		}
	}
	return func() {
		d.T.Helper()
		d.Eventually(name+" serves", func() bool {
			select {
			case err := <-done:
				d.T.Fatalf("%s ended: %v", name, err)
			default:
			}
			_, err := d.Try(name)
			return err == nil
		})
	}
}

// Phase is what a daemon answers that does not serve yet; "": it does.
func (d *Deployment) Phase(name string) string {
	if _, err := d.Try(name); err != nil {
		return api.ErrorText(err)
	}
	return ""
}

// End runs a balancer that is not to come to serve, and returns why.
func (d *Deployment) End(name string) error {
	return member.Run(d.T.Context(), d.Options(name), d.Role(config.RoleBalancer, name))
}

// StopAll stops all daemons at once: each takes a second to let go of its
// connections.
func (d *Deployment) StopAll() {
	var wg sync.WaitGroup
	for _, name := range slices.Collect(maps.Keys(d.Stops)) {
		wg.Go(d.Stops[name])
	}
	wg.Wait()
}

// Client calls the daemon called name.
func (d *Deployment) Client(name string) fairleadv1connect.FairleadClient {
	d.T.Helper()
	c, err := api.Dial(d.Endpoint(name), d.Config.TLS)
	if err != nil {
		d.T.Fatal(err)
	}
	return c
}

// Endpoint is a daemon's API.
func (d *Deployment) Endpoint(name string) string {
	for _, role := range config.Roles {
		for _, s := range d.Config.Selves(role) {
			if s.Name == name {
				return s.API
			}
		}
	}
	return ""
}

// Try asks for a daemon's status.
func (d *Deployment) Try(name string) (*fairleadv1.GetStatusResponse, error) {
	s, err := d.Client(name).GetStatus(d.T.Context(), connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return s.Msg, nil
}

// Status is a daemon's status.
func (d *Deployment) Status(name string) *fairleadv1.GetStatusResponse {
	d.T.Helper()
	s, err := d.Try(name)
	if err != nil {
		d.T.Fatalf("status of %s: %v", name, err)
	}
	return s
}

// Warned says whether a daemon's status warns of what has text in it.
func (d *Deployment) Warned(name, text string) bool {
	d.T.Helper()
	return slices.ContainsFunc(d.Status(name).Warnings, func(w string) bool { return strings.Contains(w, text) })
}

// Eventually waits until something is so.
func (d *Deployment) Eventually(what string, ok func() bool) {
	d.T.Helper()
	for deadline := time.Now().Add(daemontest.Patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			d.T.Fatalf("not in time: %s", what)
		}
	}
}

// Get asks a balancer's or switch's metrics endpoint.
func (d *Deployment) Get(name, path string) (status int, body string) {
	d.T.Helper()
	var at string
	for _, role := range config.Roles {
		for _, s := range d.Config.Selves(role) {
			if s.Name == name {
				at = s.Metrics
			}
		}
	}
	resp, err := http.Get("http://" + at + path)
	if err != nil {
		d.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.T.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// Held is the assignment that a daemon has in force.
func (d *Deployment) Held(name string) *controller.Assignment {
	d.T.Helper()
	held, err := d.Client(name).GetAssignment(d.T.Context(), connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		d.T.Fatal(err)
	}
	a, err := controller.Decode(held.Msg.Assignment)
	if err != nil {
		d.T.Fatal(err)
	}
	return a
}
