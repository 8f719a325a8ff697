package ctl

import (
	"context"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// What a controller counts. What is in the store is as the last watch had it: nobody asks
// it because Prometheus does.

var (
	mLeads    = daemon.Gauge("controller_leads", "1 if this controller leads: it finishes what nobody else does.")
	mHead     = daemon.Gauge("store_version", "Newest version that the store is known to have.")
	mInForce  = daemon.Gauge("store_version_in_force", "Newest version that all daemons with a living lease went by.")
	mUp       = daemon.Gauge("store_up", "1 if the store answers.")
	mDaemons  = daemon.Gauge("store_daemons", "Daemons with a living lease.")
	mUndone   = daemon.Gauge("controller_undone", "Number of things that are left to do and cannot be done; fairlead status has them.")
	mSize     = daemon.Gauge("store_size_bytes", "What the store takes on this controller's disk.")
	mQuota    = daemon.Gauge("store_quota_bytes", "Until what size the store takes changes.")
	mAlarm    = daemon.Gauge("store_alarm", "1 for an alarm that a member of the store has raised: NOSPACE (it is full, and takes no change) or CORRUPT.", "alarm")
	ofStore   = []daemon.Metric{mLeads, mHead, mInForce, mUp, mDaemons, mUndone, mSize, mQuota, mAlarm}
	alarmsAre = []string{"NOSPACE", "CORRUPT"}
)

// meters are what is counted as it happens.
type meters struct {
	calls   *prometheus.CounterVec
	changes *prometheus.CounterVec
	took    prometheus.Histogram
	rooms   *prometheus.CounterVec

	mu      sync.Mutex
	up      bool
	head    ledger.Head
	reports map[string]ledger.Report
	seen    time.Time // when head's version was seen first
	inForce uint64
	leads   bool
}

func newMeters() *meters {
	return &meters{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_api_calls_total",
			Help: "Calls of the API, by method and code: ok, or connect's code of the error."}, []string{"method", "code"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_changes_total",
			Help: "Calls that change the deployment, by outcome: done, or connect's code of the error (failed_precondition: refused as things stand; aborted: to be run again)."}, []string{"outcome"}),
		rooms: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_store_room_made_total",
			Help: "Times that this controller's store was full and forgot its past, by outcome: done (it takes changes again), or failed."}, []string{"outcome"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fairlead_version_in_force_seconds",
			Help:    "From when a version was seen in the store to when all daemons with a living lease went by it.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}}),
	}
}

// WrapUnary implements connect.Interceptor.
func (m *meters) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		resp, err := next(ctx, req)
		m.count(req.Spec().Procedure, err)
		return resp, err
	}
}

// WrapStreamingHandler implements connect.Interceptor.
func (m *meters) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		err := next(ctx, conn)
		m.count(conn.Spec().Procedure, err)
		return err
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (*meters) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (m *meters) count(procedure string, err error) {
	code := "ok"
	if err != nil {
		code = connect.CodeOf(err).String()
	}
	m.calls.WithLabelValues(path.Base(procedure), code).Inc()
	if access.Changes(procedure) {
		outcome := code
		if err == nil {
			outcome = "done"
		}
		m.changes.WithLabelValues(outcome).Inc()
	}
}

// moved takes a head that was seen at now.
func (m *meters) moved(head ledger.Head, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if head.Version != m.head.Version {
		m.seen = now
		if m.head.Version == 0 {
			m.seen = time.Time{} // it was there before anybody looked
		}
	}
	m.head, m.up = head, true
	m.settle(now)
}

// said takes what daemons say at now.
func (m *meters) said(reports map[string]ledger.Report, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reports = reports
	m.settle(now)
}

// settle notes that the head is in force, once; the caller holds mu.
func (m *meters) settle(now time.Time) {
	if m.head.Version <= m.inForce || !inForce(m.head, m.reports) {
		return
	}
	m.inForce = m.head.Version
	if !m.seen.IsZero() {
		m.took.Observe(now.Sub(m.seen).Seconds())
	}
}

// lost: the store does not answer.
func (m *meters) lost() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up = false
}

// measure watches the store until ctx ends.
func (c *ctl) measure(ctx context.Context) error {
	var work sync.WaitGroup
	again := func(watch func() error) {
		work.Go(func() {
			for ctx.Err() == nil {
				if err := watch(); err != nil {
					c.meters.lost()
				}
				daemon.Sleep(ctx, time.Second)
			}
		})
	}
	again(func() error {
		for head, err := range c.ledger.Heads(ctx) {
			if err != nil {
				return err
			}
			c.meters.moved(head, time.Now())
		}
		return nil
	})
	again(func() error {
		return c.ledger.Await(ctx, func(reports map[string]ledger.Report) bool {
			c.meters.said(maps.Clone(reports), time.Now())
			return false
		})
	})
	again(func() error {
		return c.leaders(ctx, func(leader string) bool {
			c.meters.mu.Lock()
			defer c.meters.mu.Unlock()
			c.meters.leads = leader == c.Name
			return true
		})
	})
	work.Wait()
	return nil
}

// collect emits what is known of the store.
func (c *ctl) collect(emit daemon.Emitter) error {
	m := c.meters
	m.mu.Lock()
	leads, up, head, inForce, daemons := m.leads, m.up, m.head.Version, m.inForce, len(m.reports)
	m.mu.Unlock()
	emit(mLeads, daemon.Truth(leads && up))
	emit(mUp, daemon.Truth(up))
	emit(mHead, float64(head))
	emit(mInForce, float64(inForce))
	emit(mDaemons, float64(daemons))
	undone := 0
	if all := c.undone.Load(); all != nil {
		undone = len(*all)
	}
	emit(mUndone, float64(undone))
	if c.server == nil { // somebody else's store has metrics of its own
		return nil
	}
	emit(mSize, float64(c.server.Bytes()))
	emit(mQuota, float64(c.server.Quota()))
	raised := c.server.Alarms()
	for _, alarm := range alarmsAre {
		emit(mAlarm, daemon.Truth(slices.Contains(raised, alarm)), alarm)
	}
	return nil
}
