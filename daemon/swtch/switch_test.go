package swtch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/kernel/swtch"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/tables/effective"
	"github.com/fairlead/fairlead/vip"
)

// fakeFabric is a switch's kernel in memory, which outlives the daemon.
type fakeFabric struct {
	mu      sync.Mutex
	desired tables.SwitchPlan
	reports map[string]swtch.Report
	status  swtch.Status
	refuse  error
}

func (f *fakeFabric) Apply(d tables.SwitchPlan) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.desired = d
	return f.refuse
}

func (f *fakeFabric) Health(reports map[string]swtch.Report) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reports == nil {
		f.reports = map[string]swtch.Report{}
	}
	maps.Copy(f.reports, reports) // those that are missing keep what was said
	return nil
}

func (f *fakeFabric) Drain(drained bool) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	if f.status.Drained == drained {
		return nil, nil
	}
	f.status.Drained = drained
	return []string{map[bool]string{true: "withdrawn", false: "announced"}[drained]}, nil
}

func (f *fakeFabric) Unlock() ([]string, error) { return []string{"unlocked"}, nil }

func (f *fakeFabric) Ready() []string {
	if f.Status().Drained {
		return []string{"drained"}
	}
	return nil
}

func (f *fakeFabric) Status() swtch.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

func (f *fakeFabric) report(server string) swtch.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reports[server]
}

func (f *fakeFabric) ChainRows(first, max int) (rows []effective.BucketRow, generation uint32, next int) {
	return nil, f.Status().Generation, 0
}

func (f *fakeFabric) LearnChains([]effective.BucketRow) error { return nil }
func (f *fakeFabric) SetEndAfter(time.Time)                   {}

func (f *fakeFabric) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (f *fakeFabric) Close() error                  { return nil }

// fakeAgent is an agent that says what a test gives it.
type fakeAgent struct {
	mu   sync.Mutex
	vips []*fairleadv1.ServingVIP
}

func (p *fakeAgent) say(vips ...*fairleadv1.ServingVIP) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vips = vips
}

// agentService is its API.
type agentService struct {
	member.Service
	p *fakeAgent
}

func (s agentService) GetServing(context.Context, *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return connect.NewResponse(&fairleadv1.GetServingResponse{Vips: s.p.vips, AssignmentVersion: s.Assignment().Version}), nil
}

const faildFile = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
controllers: [{name: c1, store: "https://127.0.0.1:2379"}]
tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}
balancers: [{name: lb1, interfaces: [eth0], api: "https://127.0.0.1:%[6]d", metrics: ""}]
switches: [{name: sw1, api: "https://127.0.0.1:%[2]d", metrics: "127.0.0.1:%[3]d"}]
servers:
  - {name: s1, address: 10.0.0.21, interfaces: [eth0], api: "https://127.0.0.1:%[4]d", metrics: ""}
  - {name: s2, address: 10.0.0.22, interfaces: [eth0], api: "https://127.0.0.1:%[5]d", metrics: ""}
vips:
  - {name: web, address: 192.0.2.10, port: 80, scheme: faild, servers: [s1, s2]}
  - {name: tls, address: 192.0.2.10, port: 443, scheme: faild, servers: [s1, s2]}
  - {name: jet, address: 192.0.2.11, port: 80, scheme: jet, servers: [s1, s2]}
`

func startSwitch(d *membertest.Deployment, f *fakeFabric) {
	d.StartRole(role(newPlane(), func(swtch.Options) (fabricSwitch, error) { return f, nil }), "sw1")
}

// planeOf is a plane that nobody has opened.
func planeOf(f fabricSwitch) *plane {
	p := newPlane()
	p.log, p.sw = slog.New(slog.DiscardHandler), f
	return p
}

// A switch's daemon from its start over what agents say to a drain that
// outlasts it; no balancer runs, and the agents go by it all the same.
func TestSwitchDaemon(t *testing.T) {
	d := membertest.NewOf(t, faildFile)
	f := &fakeFabric{}
	agents := map[string]*fakeAgent{}
	for _, name := range []string{"s1", "s2"} {
		p := new(fakeAgent)
		agents[name] = p
		r := membertest.Role(config.RoleHost, func(*member.Member) (member.Opened, error) { return d.Plane(name).Opened(), nil })
		r.Service = func(m *member.Member) fairleadv1connect.FairleadHandler {
			return agentService{member.Service{Member: m}, p}
		}
		d.StartRole(r, name)
	}
	const up, down, disabled = fairleadv1.Serving_SERVING_UP, fairleadv1.Serving_SERVING_DOWN, fairleadv1.Serving_SERVING_DISABLED
	agents["s1"].say(&fairleadv1.ServingVIP{VipId: 1, Name: "web", State: up, Connections: 3, AgeMs: 40},
		&fairleadv1.ServingVIP{VipId: 2, Name: "tls", State: disabled, Detail: "by hand", Connections: 4, AgeMs: 3_600_000})
	agents["s2"].say(&fairleadv1.ServingVIP{VipId: 1, Name: "web", State: up})
	startSwitch(d, f)

	f.mu.Lock()
	want := f.desired
	f.mu.Unlock()
	if want.Version != 1 || len(want.Servers) != 2 || want.Table == nil || len(want.VIPs) != 1 {
		t.Fatalf("the switch is to have %+v", want)
	}
	d.Eventually("agents are asked", func() bool { return f.report("s1").Answered })
	r := f.report("s1")
	if old := time.Since(r.At); r.State != swtch.Disabled || r.Detail != "VIP tls: by hand" || r.Connections != 7 || old < time.Hour || old > time.Hour+time.Minute {
		t.Errorf("of s1: %+v", r)
	}
	// It does not know of one VIP: what it counts is not all.
	if r := f.report("s2"); !r.Answered || r.State != swtch.Down || !r.At.IsZero() || r.Detail != "its agent knows 1 of 2 VIPs" {
		t.Errorf("of s2: %+v", r)
	}
	agents["s2"].say(&fairleadv1.ServingVIP{VipId: 2, Name: "tls", State: disabled}, &fairleadv1.ServingVIP{VipId: 1, Name: "web", State: down, Detail: "refused"},
		&fairleadv1.ServingVIP{VipId: 99, Name: "other", State: down, Connections: 100})
	d.Eventually("down weighs more than disabled", func() bool {
		r := f.report("s2")
		return r.State == swtch.Down && r.Detail == "VIP web: refused" && r.Connections == 0
	})

	// A change by way of an agent reaches the switch, and it alone has them all.
	if _, err := d.Coordinator().DrainServer(t.Context(), &fairleadv1.DrainServerRequest{Server: "s1", Without: []string{"lb1"}}); err != nil {
		t.Fatal(err)
	}
	s := d.Status("sw1")
	if s.AssignmentVersion != 2 || s.Role != fairleadv1.Role_ROLE_SWITCH || len(s.Vips) != 2 || len(s.Peers) != 3 || s.Clock.PeerSkewMs != 0 {
		t.Errorf("status of the switch: version %d, role %v, %d VIPs, peers %v", s.AssignmentVersion, s.Role, len(s.Vips), s.Peers)
	}
	d.Stops["s2"]()
	d.Eventually("an agent that does not answer", func() bool { return !f.report("s2").Answered && f.report("s2").Detail != "" })

	// Drained: at once, on disk, and a router is told.
	operator := daemontest.User(t, d.Dir, access.Operate)
	c, err := api.Dial(d.Endpoint("sw1"), operator)
	if err != nil {
		t.Fatal(err)
	}
	sw, _ := d.Config.Switch("sw1")
	if code, body := d.Get("sw1", "/ready"); code != http.StatusOK {
		t.Errorf("/ready: %d %s", code, body)
	}
	drained := func(undrain bool, want ...string) {
		t.Helper()
		r, err := c.DrainSwitch(t.Context(), connect.NewRequest(&fairleadv1.DrainSwitchRequest{Undrain: undrain}))
		if err != nil || !slices.Equal(r.Msg.Changes, want) {
			t.Errorf("undrain %t: %v, %v", undrain, r, err)
		}
	}
	drained(false, "withdrawn")
	drained(false)
	if code, body := d.Get("sw1", "/ready"); code != http.StatusServiceUnavailable || !strings.Contains(body, "drained") {
		t.Errorf("/ready of a drained switch: %d %s", code, body)
	}
	d.Stops["sw1"]()
	state, err := daemon.OpenState(d.State(), "sw1", "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	o, err := options(sw, state)
	if err := errors.Join(err, state.Close()); err != nil {
		t.Fatal(err)
	}
	onDisk := func() bool {
		_, err := os.Stat(d.File("sw1", drainedName))
		return err == nil
	}
	if !o.Drained || o.Bridge != "br0" || o.AnnounceTable != 177 || o.Health.LockShare != 0.5 || o.Health.Flaps != 3 {
		t.Errorf("a switch that starts again: %+v", o)
	}
	startSwitch(d, f)
	// The kernel refuses: nothing is changed on disk either.
	f.mu.Lock()
	f.refuse = errors.New("no buffer space")
	f.mu.Unlock()
	if _, err := c.DrainSwitch(t.Context(), connect.NewRequest(&fairleadv1.DrainSwitchRequest{Undrain: true})); err == nil || !onDisk() {
		t.Errorf("a drain that failed: %v", err)
	}
	f.mu.Lock()
	f.refuse = nil
	f.mu.Unlock()
	drained(true, "announced")
	if onDisk() {
		t.Error("undrained, but not on disk")
	}

	// Whoever is none says who is asked in vain.
	h, err := api.Dial(d.Endpoint("s1"), operator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.DrainSwitch(t.Context(), connect.NewRequest(&fairleadv1.DrainSwitchRequest{})); connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "s1 is a host's agent: ask a switch") {
		t.Errorf("DrainSwitch of an agent: %v", err)
	}
	machine, err := api.Dial(d.Endpoint("sw1"), d.Config.TLS)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"GetServing": second(c.GetServing(t.Context(), connect.NewRequest(&fairleadv1.GetServingRequest{}))),
		"GetFlows": second(machine.GetFlows(t.Context(), connect.NewRequest(&fairleadv1.GetFlowsRequest{})))} {
		if connect.CodeOf(err) != connect.CodeUnimplemented || !strings.Contains(err.Error(), "sw1 is a switch") {
			t.Errorf("%s of a switch: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// What the kernel has is in status and metrics, with the warnings that an
// operator needs.
func TestSwitchStatus(t *testing.T) {
	d := membertest.NewOf(t, faildFile)
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	f := &fakeFabric{status: swtch.Status{
		Bridge: "br0", Generation: 7, Locked: true, LockReason: "2 of 2 servers went down within 10s", LockedSince: at, Plain: true,
		Groups: []swtch.Group{{Family: "ipv4", ID: swtch.FirstID, Nexthops: 256}},
		Hosts: []swtch.Host{
			{Server: "s1", Number: 0, State: swtch.Up, Since: at, Nexthops: 200, Port: "eth1", Connections: 12},
			{Server: "s2", Number: 1, State: swtch.Down, Detail: "refused", HeldDownUntil: at.Add(time.Hour), Nexthops: 56, PreviousOf: map[string]int{"s1": 72}},
		},
		Corrections: map[string]uint64{"neighbour": 3}, Repointed: 72, LastChange: 1500 * time.Microsecond, Retries: 2, Rollbacks: 1,
		Error: "no route", Chained: 72, Renewed: 3, Deputies: 56, Forgotten: 2, ChainsEnd: at.Add(4 * time.Minute),
	}}
	startSwitch(d, f)
	s := d.Status("sw1")
	sw := s.Switch
	if sw.Bridge != "br0" || !sw.Locked || !sw.Plain || sw.LockedSinceUnixMs != at.UnixMilli() || len(sw.Groups) != 1 || sw.Generation != 7 ||
		sw.Repointed != 72 || sw.LastChangeUs != 1500 || sw.Chained != 72 || sw.ChainsEndUnixMs != at.Add(4*time.Minute).UnixMilli() {
		t.Errorf("switch %+v", sw)
	}
	if h := sw.Hosts[1]; h.State != fairleadv1.Serving_SERVING_DOWN || len(h.PreviousOf) != 1 || h.PreviousOf[0].Server != "s1" || h.PreviousOf[0].Nexthops != 72 {
		t.Errorf("s2 %+v", h)
	}
	if v := s.Vips[0]; v.Buckets.Count != 256 || v.Buckets.Generation != 7 || v.Buckets.Chained != 72 || v.Slots[0].Buckets != 200 || !v.Slots[0].TakesNew ||
		v.Slots[1].PreviousOf != 72 || v.Slots[1].Health != fairleadv1.Health_HEALTH_DOWN || v.Slots[1].HealthDetail != "refused" {
		t.Errorf("VIP %+v", v)
	}
	for _, want := range []string{
		"the kernel is not as it should be: no route",
		"LOCKED: 2 of 2 servers went down within 10s; the switch spreads packets over all servers by plain ECMP and follows nobody's health. 1 of 2 servers are up now: see to the others, then fairlead unlock sw1",
		"server s2 went up and down too often and is held down until " + at.Add(time.Hour).Format(time.RFC3339),
		"server s2: no port of bridge br0 is known to lead to it: name it under switches[].ports",
	} {
		if !slices.ContainsFunc(s.Warnings, func(w string) bool { return strings.HasPrefix(w, want) }) {
			t.Errorf("no warning %q in %q", want, s.Warnings)
		}
	}
	_, text := d.Get("sw1", "/metrics")
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "fairlead_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, want := range []string{
		`fairlead_switch_locked 1`, `fairlead_switch_plain 1`, `fairlead_switch_drained 0`, `fairlead_switch_kernel_wrong 1`,
		`fairlead_switch_nexthops{server="s1"} 200`, `fairlead_switch_previous_nexthops{current="s1",server="s2"} 72`,
		`fairlead_switch_host_state{server="s2",state="down"} 1`, `fairlead_switch_host_held_down{server="s2"} 1`,
		`fairlead_switch_corrections_total{kind="neighbour"} 3`, `fairlead_switch_corrections_total{kind="route"} 0`,
		`fairlead_switch_repointed_total 72`, `fairlead_switch_last_change_seconds 0.0015`, `fairlead_switch_retries_total 2`,
		`fairlead_vip_buckets{vip="web"} 256`, `fairlead_vip_chained_buckets{vip="tls"} 72`,
		`fairlead_vip_renewed_buckets{vip="tls"} 3`, `fairlead_vip_deputised_buckets{vip="tls"} 56`, `fairlead_vip_forgotten_previous_total{vip="tls"} 2`, `fairlead_server_buckets{server="s1",slot="0",vip="web"} 200`,
		`fairlead_server_previous_buckets{server="s2",slot="1",vip="web"} 72`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// Agents stay asked over a change that does not concern them, and one that
// cannot be reached at all is said so.
func TestSwitchFollows(t *testing.T) {
	p := planeOf(&fakeFabric{})
	v := controller.VIP{
		ID:       5,
		Settings: vip.Settings{Scheme: vip.Faild},
		Slots:    []controller.Slot{{Number: 0, Server: "s1", API: "unix:/nowhere/s1.sock"}, {Number: 1, Server: "s2", API: "ftp://s2"}},
	}
	p.follow(&controller.Assignment{VIPs: []controller.VIP{v}})
	client := p.agents["s1"].client
	v.Slots = append(v.Slots, controller.Slot{Number: 2, Server: "s3", API: "unix:/nowhere/s3.sock"})
	p.follow(&controller.Assignment{VIPs: []controller.VIP{v, {ID: 6, Settings: vip.Settings{Scheme: vip.Beamer}, Slots: []controller.Slot{{Server: "s4"}}}}})
	if len(p.agents) != 3 || p.agents["s1"].client != client {
		t.Errorf("agents %v", p.agents)
	}
	reports := poll(t.Context(), p.agents)
	for _, name := range []string{"s1", "s2", "s3"} {
		if r := reports[name]; r.Answered || r.Detail == "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// hungClient is the API of an agent whose machine has no power: nothing comes
// back, ever.
type hungClient struct {
	fairleadv1connect.FairleadClient
}

func (hungClient) GetServing(ctx context.Context, _ *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// askedClient is an agent's API that says what it is given.
type askedClient struct {
	fairleadv1connect.FairleadClient
	version uint64
	vips    []*fairleadv1.ServingVIP
}

func (c *askedClient) GetServing(_ context.Context, r *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	if !r.Msg.Owned {
		return nil, errors.New("not asked what it owns")
	}
	return connect.NewResponse(&fairleadv1.GetServingResponse{Vips: c.vips, AssignmentVersion: c.version}), nil
}

// Those that hang take nobody else's time.
func TestHungAgents(t *testing.T) {
	p := planeOf(&fakeFabric{})
	p.agents = map[string]*polled{}
	for i := range 300 {
		p.agents[fmt.Sprint("hung", i)] = &polled{client: hungClient{}}
	}
	for i := range 20 {
		p.agents[fmt.Sprint("well", i)] = &polled{client: &askedClient{}}
	}
	reports := poll(t.Context(), p.agents)
	for name, r := range reports {
		if r.Answered != strings.HasPrefix(name, "well") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if len(reports) != 320 {
		t.Errorf("%d reports", len(reports))
	}
}

// What a server's VIPs say, taken together.
func TestAskedOfSeveralVIPs(t *testing.T) {
	const up, down, disabled, unknown = fairleadv1.Serving_SERVING_UP, fairleadv1.Serving_SERVING_DOWN, fairleadv1.Serving_SERVING_DISABLED, fairleadv1.Serving_SERVING_UNKNOWN
	for name, c := range map[string]struct {
		one, two fairleadv1.Serving // 0: the agent does not know the VIP
		version  uint64             // of the agent's assignment
		want     swtch.State
	}{
		"both up":                               {up, up, 5, swtch.Up},
		"one down":                              {up, down, 5, swtch.Down},
		"the other VIP goes away":               {up, disabled, 5, swtch.Up},
		"and fails here":                        {down, disabled, 5, swtch.Down},
		"taken out by hand":                     {disabled, up, 5, swtch.Disabled},
		"both taken out":                        {disabled, disabled, 5, swtch.Disabled},
		"no check is over":                      {unknown, up, 5, swtch.Unknown},
		"no check is over, but one fails":       {unknown, down, 5, swtch.Down},
		"the other VIP is gone in its version":  {up, 0, 6, swtch.Up},
		"both are gone in its version":          {0, 0, 6, swtch.Unknown},
		"its version is old, and without a VIP": {up, 0, 4, swtch.Down},
		"one is missing in the same version":    {up, 0, 5, swtch.Down},
	} {
		client := &askedClient{version: c.version}
		for i, state := range []fairleadv1.Serving{c.one, c.two} {
			if state != 0 {
				client.vips = append(client.vips, &fairleadv1.ServingVIP{VipId: uint32(i + 1), State: state, Connections: 1})
			}
		}
		a := &polled{vips: map[uint32]bool{1: true, 2: false}, version: 5, client: client}
		if r := a.ask(t.Context()); !r.Answered || r.State != c.want {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func fixed(s *config.Switch) []member.Setting {
	return role(newPlane(), nil).Fixed(config.Self{Switch: s})
}

// Every key of a switch that is read once is named when it changes.
func TestSwitchKeysNeedRestart(t *testing.T) {
	var keys []string
	typ := reflect.TypeFor[config.Switch]()
	for i := range typ.NumField() {
		key := typ.Field(i).Tag.Get("yaml")
		if key == "name" || key == "api" || key == "metrics" || key == "bgp" {
			continue // told for every daemon
		}
		keys = append(keys, key)
		old, is := reflect.New(typ), reflect.New(typ)
		switch f := is.Elem().Field(i); f.Kind() {
		case reflect.String:
			f.SetString("br1")
		case reflect.Map:
			f.Set(reflect.ValueOf(map[string]string{"s1": "eth9"}))
		default:
			f.SetInt(7)
		}
		now := fixed(is.Interface().(*config.Switch))
		for i, was := range fixed(old.Interface().(*config.Switch)) {
			if changed := !reflect.DeepEqual(was, now[i]); changed != (was.Name == key) {
				t.Errorf("%s changed: %s %v", key, was.Name, changed)
			}
		}
	}
	if got := fixed(new(config.Switch)); len(got) != len(keys) {
		t.Errorf("%d settings of %q", len(got), keys)
	}
}
