package paths

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// service is the service's API (fairlead.v1.Paths). It is the client, too,
// where a command works on the file alone: both have the same methods.
type service struct {
	log *slog.Logger
	// keep puts what is placed on disk, and tries until that takes it; diskWarnings
	// says what is not as it should be there. Both nil: there is no disk.
	keep         func(paths.State) error
	diskWarnings func() []string
	// reload is the daemon's; nil: there is none.
	reload func() (*connect.Response[fairleadv1.ReloadResponse], error)

	// mu is held for writing while the fabric is replaced, so that no flow is
	// placed in the old one meanwhile.
	mu      sync.RWMutex
	current atomic.Pointer[view]

	// changes counts what is placed and released; saved those that are on disk.
	changes atomic.Uint64
	disk    sync.Mutex
	saved   uint64

	silent atomic.Pointer[[]string] // of routers that do not answer
}

// view is one fabric.
type view struct {
	fabric    *topology.Fabric
	net       *paths.Net
	scheduler *paths.Scheduler
}

// Reload has the file read again.
func (s *service) Reload(context.Context, *connect.Request[fairleadv1.ReloadRequest]) (*connect.Response[fairleadv1.ReloadResponse], error) {
	if s.reload == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("there is no daemon that would read its file again"))
	}
	return s.reload()
}

// handler answers for the API.
func (s *service) handler(options connect.HandlerOption) http.Handler {
	_, h := fairleadv1connect.NewPathsHandler(s, options, daemon.WholeJSON())
	return h
}

// Local answers from a fabric alone, without a service: what it places is
// remembered by nobody.
func Local(f *topology.Fabric) (fairleadv1connect.PathsClient, error) {
	s, err := newService(f)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newService(f *topology.Fabric) (*service, error) {
	s := &service{log: slog.New(slog.DiscardHandler)}
	v, err := newView(f)
	if err != nil {
		return nil, err
	}
	s.current.Store(v)
	return s, nil
}

func newView(f *topology.Fabric) (*view, error) {
	n, err := paths.New(f)
	if err != nil {
		return nil, err
	}
	return &view{f, n, paths.NewScheduler(n)}, nil
}

func (s *service) view() *view { return s.current.Load() }

// replace puts another fabric in force, with all flows that it still has paths for.
func (s *service) replace(f *topology.Fabric) ([]paths.Restored, error) {
	v, err := newView(f)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	changed := v.scheduler.Restore(s.view().scheduler.State())
	s.current.Store(v)
	s.mu.Unlock()
	s.changes.Add(1)
	return changed, s.save()
}

// expire ends flows whose time is over.
func (s *service) expire(now time.Time) {
	s.mu.RLock()
	ended := s.view().scheduler.Expire(now)
	s.mu.RUnlock()
	if len(ended) == 0 {
		return
	}
	for i := range ended {
		s.log.Info("a placed flow's time is over", "id", ended[i].ID, "owner", ended[i].Order.Owner)
	}
	s.changes.Add(1)
	if err := s.save(); err != nil {
		s.log.Error("placed flows are not on disk", "error", err)
	}
}

// save puts what is placed on disk. Many changes at once take one writing.
func (s *service) save() error {
	if s.keep == nil {
		return nil
	}
	wanted := s.changes.Load()
	s.disk.Lock()
	defer s.disk.Unlock()
	if s.saved > wanted || s.saved == wanted && wanted > 0 {
		return nil // somebody did, after this change
	}
	has := s.changes.Load()
	if err := s.keep(s.view().scheduler.State()); err != nil {
		return err
	}
	s.saved = has
	return nil
}

// warnings is what people should know.
func (s *service) warnings() (warnings []string) {
	if w := s.silent.Load(); w != nil {
		warnings = slices.Clone(*w)
	}
	if s.diskWarnings != nil {
		warnings = append(warnings, s.diskWarnings()...)
	}
	return warnings
}

// change runs a change of what is placed, and answers when it is on disk. If the
// disk refuses, it is undone: a flow whose number nobody was told could not be
// released. Without an undo it stays in force, and the error says so.
func (s *service) change(do func(*view) error, undo func(*paths.Scheduler)) error {
	s.mu.RLock()
	err := do(s.view())
	s.mu.RUnlock()
	if err != nil {
		return pathError(err)
	}
	s.changes.Add(1)
	err = s.save()
	switch {
	case err == nil:
		return nil
	case undo == nil:
		return connect.NewError(connect.CodeInternal, fmt.Errorf("the change is in force, but lost when the service starts again: %w", err))
	}
	s.mu.RLock()
	undo(s.view().scheduler)
	s.mu.RUnlock()
	s.changes.Add(1)
	// Another change's writing may have had it on disk in between.
	if again := s.save(); again != nil {
		s.log.Error("placed flows are not on disk", "error", again)
	}
	return connect.NewError(connect.CodeInternal, fmt.Errorf("nothing was placed, as it would be lost when the service starts again: %w", err))
}

// pathError gives an error the code that the schema promises.
func pathError(err error) error {
	code := connect.CodeInvalidArgument
	switch {
	case err == nil:
		return nil
	case errors.Is(err, paths.ErrUnknown), errors.Is(err, paths.ErrUnplaced), errors.Is(err, paths.ErrNoPath):
		code = connect.CodeNotFound
	case errors.Is(err, paths.ErrUnsteered), errors.Is(err, pathsel.ErrNoSelector), errors.Is(err, pathsel.ErrCollision):
		code = connect.CodeFailedPrecondition
	}
	return connect.NewError(code, err)
}

// Lists that are asked for without a limit, and the most that one call gives.
const (
	usualPaths = 1000
	mostPaths  = 100_000
	mostFlows  = 100_000
)

// GetFabric implements the API.
func (s *service) GetFabric(context.Context, *connect.Request[fairleadv1.GetFabricRequest]) (*connect.Response[fairleadv1.GetFabricResponse], error) {
	resp := s.view().message()
	resp.Warnings = s.warnings()
	return connect.NewResponse(resp), nil
}

// ListPaths implements the API.
func (s *service) ListPaths(_ context.Context, req *connect.Request[fairleadv1.ListPathsRequest]) (*connect.Response[fairleadv1.ListPathsResponse], error) {
	v, m := s.view(), req.Msg
	routes, err := v.routes(m.From, m.To, m.Rules)
	if err != nil {
		return nil, pathError(err)
	}
	limit := uint64(m.Limit)
	limit = cmp.Or(limit, usualPaths)
	if limit > mostPaths {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("limit %d: at most %d paths in one call; ask for the next ones with first", limit, mostPaths))
	}
	resp := &fairleadv1.ListPathsResponse{Total: bounded(routes.Count())}
	for i := uint64(m.First); i < routes.Count() && i < uint64(m.First)+limit; i++ {
		var p paths.Path
		routes.At(i, &p)
		resp.Paths = append(resp.Paths, v.path(&p, i))
	}
	return connect.NewResponse(resp), nil
}

// GetPorts implements the API.
func (s *service) GetPorts(_ context.Context, req *connect.Request[fairleadv1.GetPortsRequest]) (*connect.Response[fairleadv1.GetPortsResponse], error) {
	v, m := s.view(), req.Msg
	if m.Count > mostFlows {
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("count %d: at most %d flows in one call", m.Count, mostFlows))
	}
	wanted, err := requestOf(m.Wanted)
	if err != nil {
		return nil, pathError(err)
	}
	if err := v.checkEnds(m.From, m.To, &wanted); err != nil {
		return nil, pathError(err)
	}
	routes, err := v.routes(m.From, m.To, m.Rules)
	if err != nil {
		return nil, pathError(err)
	}
	if uint64(m.Number) >= routes.Count() {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("path %d: there are %d from %s to %s, numbered from 0", m.Number, routes.Count(), m.From, m.To))
	}
	if wanted.Random = m.Random; m.Random == 0 {
		wanted.Random = rand.Uint64()
	}
	var p paths.Path
	routes.At(uint64(m.Number), &p)
	resp := &fairleadv1.GetPortsResponse{Path: v.path(&p, uint64(m.Number))}
	err = v.net.EachPorts(&p, wanted, max(1, int(m.Count)), func(f pathsel.Flow) bool {
		resp.Flows = append(resp.Flows, fieldsOf(f))
		return true
	})
	if err != nil {
		return nil, pathError(err)
	}
	return connect.NewResponse(resp), nil
}

// GetPath implements the API.
func (s *service) GetPath(_ context.Context, req *connect.Request[fairleadv1.GetPathRequest]) (*connect.Response[fairleadv1.GetPathResponse], error) {
	v := s.view()
	flow, err := flowOf(req.Msg.Flow)
	if err != nil {
		return nil, pathError(err)
	}
	ttl, err := atMost("ttl", req.Msg.Ttl, 255)
	if err != nil {
		return nil, pathError(err)
	}
	p, choices, known, err := v.net.Of(flow, uint8(ttl))
	if err != nil {
		return nil, pathError(err)
	}
	resp := &fairleadv1.GetPathResponse{Path: v.path(&p, v.number(&p, paths.Rules{}))}
	for _, c := range choices {
		resp.Choices = append(resp.Choices, v.choice(&c))
	}
	if !known {
		resp.UnknownAt = v.fabric.Nodes[choices[len(choices)-1].Node].Name
	}
	return connect.NewResponse(resp), nil
}
