package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// pathService is the service's API (fairlead.v1.Paths). It is the client, too,
// where a command works on the file alone: both have the same methods.
type pathService struct {
	log *slog.Logger
	// keep puts what is placed on disk; nil: there is none. damaged says what was
	// not whole there.
	keep    func(paths.State) error
	damaged func() []string

	// mu is held for writing while the fabric is replaced, so that no flow is
	// placed in the old one meanwhile.
	mu      sync.RWMutex
	current atomic.Pointer[pathView]

	// changes counts what is placed and released; saved those that are on disk.
	changes atomic.Uint64
	disk    sync.Mutex
	saved   uint64
	unsaved atomic.Pointer[string] // why the disk did not take it; nil: it did

	warnings atomic.Pointer[[]string] // of routers that do not answer
}

// pathView is one fabric.
type pathView struct {
	fabric    *topology.Fabric
	net       *paths.Net
	scheduler *paths.Scheduler
}

// LocalPaths answers from a fabric alone, without a service: what it places is
// remembered by nobody.
func LocalPaths(f *topology.Fabric) (fairleadv1connect.PathsClient, error) {
	s, err := newPathService(f)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func newPathService(f *topology.Fabric) (*pathService, error) {
	s := &pathService{log: slog.New(slog.DiscardHandler)}
	v, err := newPathView(f)
	if err != nil {
		return nil, err
	}
	s.current.Store(v)
	return s, nil
}

func newPathView(f *topology.Fabric) (*pathView, error) {
	n, err := paths.New(f)
	if err != nil {
		return nil, err
	}
	return &pathView{f, n, paths.NewScheduler(n)}, nil
}

func (s *pathService) view() *pathView { return s.current.Load() }

// replace puts another fabric in force, with all flows that it still has paths for.
func (s *pathService) replace(f *topology.Fabric) ([]paths.Restored, error) {
	v, err := newPathView(f)
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
func (s *pathService) expire(now time.Time) {
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
func (s *pathService) save() error {
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
		s.unsaved.Store(new(err.Error()))
		return err
	}
	s.saved = has
	s.unsaved.Store(nil)
	return nil
}

// retry writes what the disk did not take.
func (s *pathService) retry() {
	if s.unsaved.Load() != nil && s.save() == nil {
		s.log.Info("the disk takes placed flows again")
	}
}

// diskWarnings says what is not as it should be on disk.
func (s *pathService) diskWarnings() (warnings []string) {
	if s.damaged != nil {
		warnings = s.damaged()
	}
	if why := s.unsaved.Load(); why != nil {
		warnings = append(warnings, "placed flows are not on disk ("+*why+"): none is placed until it takes them, and what was released counts again after a restart; make room, it is tried every second")
	}
	return warnings
}

// change runs a change of what is placed, and answers when it is on disk. If the
// disk refuses, it is undone: a flow whose number nobody was told could not be
// released. Without an undo it stays in force, and the error says so.
func (s *pathService) change(do func(*pathView) error, undo func(*paths.Scheduler)) error {
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
func (s *pathService) GetFabric(context.Context, *connect.Request[fairleadv1.GetFabricRequest]) (*connect.Response[fairleadv1.GetFabricResponse], error) {
	resp := s.view().message()
	if w := s.warnings.Load(); w != nil {
		resp.Warnings = slices.Clone(*w)
	}
	resp.Warnings = append(resp.Warnings, s.diskWarnings()...)
	return connect.NewResponse(resp), nil
}

// ListPaths implements the API.
func (s *pathService) ListPaths(_ context.Context, req *connect.Request[fairleadv1.ListPathsRequest]) (*connect.Response[fairleadv1.ListPathsResponse], error) {
	v, m := s.view(), req.Msg
	routes, err := v.routes(m.From, m.To, m.Rules)
	if err != nil {
		return nil, pathError(err)
	}
	limit := uint64(m.Limit)
	if limit == 0 {
		limit = usualPaths
	}
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
func (s *pathService) GetPorts(_ context.Context, req *connect.Request[fairleadv1.GetPortsRequest]) (*connect.Response[fairleadv1.GetPortsResponse], error) {
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
func (s *pathService) GetPath(_ context.Context, req *connect.Request[fairleadv1.GetPathRequest]) (*connect.Response[fairleadv1.GetPathResponse], error) {
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
