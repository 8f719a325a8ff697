package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// fleet is daemons in memory, which follow a store in memory, each over a link that can
// be cut. Whatever one of them puts in force is checked against what all others have.
type fleet struct {
	t       testing.TB
	memory  *store.Memory
	links   map[string]*store.MemoryClient
	ctx     context.Context
	stop    func()
	work    sync.WaitGroup
	mu      sync.Mutex
	daemons map[string]*fake // by api
	order   []string         // "NAME VERSION" as they took them
	wrong   error            // the first time that two daemons' versions did not mix
	forced  bool             // what is not mixable is meant so
	cfg     *config.Config
	text    []byte // of cfg
}

// fake is one daemon.
type fake struct {
	fairleadv1connect.FairleadClient
	fleet *fleet
	name  string
	cur   *controller.Assignment
	live  []*fairleadv1.LiveVIP
	// serving is what it says of VIPs with buckets, asked how often it was asked.
	serving []*fairleadv1.ServingVIP
	asked   int
	looked  int // how often it was asked what it has
	// away is why it does not answer, nor reach the store.
	away error
	// mute is why it does not answer, although it reaches the store.
	mute error
	// fresh: it was started when others were away already, and never heard
	// of them.
	fresh bool
	// fail, if set, is asked before (done false) and after (done true) an
	// assignment is taken; its error is the caller's answer.
	fail func(version uint64, done bool) error
	// tries counts the versions of a store that it could not take.
	tries uint64
}

func newFleet(t testing.TB, yaml string) *fleet {
	t.Helper()
	f := &fleet{t: t, daemons: map[string]*fake{}, memory: store.NewMemory(), links: map[string]*store.MemoryClient{}}
	ctx, cancel := context.WithCancel(context.Background())
	f.ctx, f.stop = ctx, func() { cancel(); f.work.Wait() }
	t.Cleanup(f.stop)
	f.load(t, yaml)
	for _, s := range f.cfg.Servers {
		f.start(t, s.Name, s.API)
	}
	for _, b := range f.cfg.Balancers {
		f.start(t, b.Name, b.API)
	}
	for _, s := range f.cfg.Switches {
		f.start(t, s.Name, s.API)
	}
	return f
}

func (f *fleet) load(t testing.TB, yaml string) {
	t.Helper()
	f.text = []byte("secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\ncontrollers: [{name: ctl}]\n" + yaml)
	cfg, err := config.Parse("fairlead.yaml", f.text)
	if err != nil {
		t.Fatal(err)
	}
	f.cfg = cfg
}

// start adds a daemon that begins from the file.
func (f *fleet) start(t testing.TB, name, api string) *fake {
	first, err := controller.First(f.cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &fake{fleet: f, name: name, cur: first}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.daemons[api] = d
	return d
}

// away has a daemon answer nobody, or again where why is nil.
func (f *fleet) away(name string, why error) {
	f.mu.Lock()
	f.get(name).away = why
	follows := f.links[name] != nil
	f.mu.Unlock()
	if follows && why != nil {
		f.heard(name)
	}
}

// heard waits until the store has heard of a daemon's end, or of what it has now.
func (f *fleet) heard(name string) {
	f.t.Helper()
	link := f.memory.Client()
	defer link.Close()
	ctx, cancel := context.WithTimeout(f.ctx, 10*time.Second)
	defer cancel()
	if err := f.ledger(link).Await(ctx, func(said map[string]ledger.Report) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		d := f.get(name)
		r, lives := said[name]
		return lives == (d.away == nil) && (!lives || r.Version == d.cur.Version)
	}); err != nil {
		f.t.Fatalf("%s is not heard of: %v", name, err)
	}
}

func (f *fleet) get(name string) *fake { return f.daemons[config.DefaultAPI(name)] }

func (f *fleet) ledger(link store.Store) *ledger.Ledger {
	l, err := ledger.New(link, f.cfg.SecretBytes())
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// follow has daemons that do not follow the store yet do so.
func (f *fleet) follow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.daemons {
		if f.links[d.name] != nil {
			continue
		}
		link := f.memory.Client()
		f.links[d.name] = link
		f.work.Go(func() {
			for l := f.ledger(link); f.ctx.Err() == nil; {
				d.follow(f.ctx, link, l)
			}
			_ = link.Close()
		})
	}
}

// coordinator works over a link of its own.
func (f *fleet) coordinator() *Coordinator {
	c, _ := f.linked()
	return c
}

func (f *fleet) linked() (*Coordinator, *store.MemoryClient) {
	f.follow()
	link := f.memory.Client()
	return &Coordinator{
		Ledger: f.ledger(link), Who: "a test",
		Config: func() *config.Config { return f.cfg },
		dialTo: func(endpoint string, _ config.TLS) (fairleadv1connect.FairleadClient, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if d := f.daemons[endpoint]; d != nil {
				return d, nil
			}
			return &fake{fleet: f, away: errors.New("no such socket")}, nil
		},
	}, link
}

// versions is what everybody has, "lb1=3 lb2=3 …".
func (f *fleet) versions() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, s := range f.cfg.Servers {
		if d := f.get(s.Name); d != nil {
			all = append(all, fmt.Sprintf("%s=%d", s.Name, d.cur.Version))
		}
	}
	for _, b := range f.cfg.Balancers {
		if d := f.get(b.Name); d != nil {
			all = append(all, fmt.Sprintf("%s=%d", b.Name, d.cur.Version))
		}
	}
	return strings.Join(all, " ")
}

// silent is why it does not answer.
func (d *fake) silent() error {
	if d.away != nil {
		return d.away
	}
	return d.mute
}

func unavailable(err error) error {
	if connect.IsWireError(err) {
		return err
	}
	return connect.NewError(connect.CodeUnavailable, err)
}

func (d *fake) GetAssignment(context.Context, *connect.Request[fairleadv1.GetAssignmentRequest]) (*connect.Response[fairleadv1.GetAssignmentResponse], error) {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	if d.looked++; d.silent() != nil {
		return nil, unavailable(d.silent())
	}
	return connect.NewResponse(&fairleadv1.GetAssignmentResponse{Assignment: d.cur.Encode(), Version: d.cur.Version}), nil
}

func (d *fake) GetServing(_ context.Context, r *connect.Request[fairleadv1.GetServingRequest]) (*connect.Response[fairleadv1.GetServingResponse], error) {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	if d.asked++; d.silent() != nil || !r.Msg.Owned {
		return nil, unavailable(d.silent())
	}
	return connect.NewResponse(&fairleadv1.GetServingResponse{Vips: d.serving}), nil
}

// GetStatus is what peers remember of peers.
func (d *fake) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	if err := d.silent(); err != nil {
		return nil, unavailable(err)
	}
	r := &fairleadv1.GetStatusResponse{}
	for _, o := range d.fleet.daemons {
		p := &fairleadv1.Peer{Name: o.name, Reachable: o.away == nil, AssignmentVersion: o.cur.Version}
		if o.away != nil && d.fresh {
			p.AssignmentVersion = 0
		}
		r.Peers = append(r.Peers, p)
	}
	return connect.NewResponse(r), nil
}

func (d *fake) GetLive(context.Context, *connect.Request[fairleadv1.GetLiveRequest]) (*connect.Response[fairleadv1.GetLiveResponse], error) {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	if err := d.silent(); err != nil {
		return nil, unavailable(err)
	}
	return connect.NewResponse(&fairleadv1.GetLiveResponse{Vips: d.live}), nil
}
