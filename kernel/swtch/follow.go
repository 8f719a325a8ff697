package swtch

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/tables/effective"
)

// settle brings the rows up to date.
func (s *Switch) settle() {
	now := s.o.Now()
	if !s.desired.Serves() {
		s.rows, s.due, s.adopting = new(effective.Table), time.Time{}, time.Time{}
		return
	}
	if !s.adopting.IsZero() {
		if !s.healthy && now.Before(s.adopting) {
			s.due = s.adopting
			return
		}
		s.adopting = time.Time{}
	}
	if s.rows == nil {
		s.rows = new(effective.Table)
	}
	due, _ := s.rows.Update(s.desired.Table, s.view(seconds(now)))
	s.due = time.Time{}
	if due != 0 {
		s.due = time.Unix(int64(due), 0)
	}
}

// view is what the rows go by besides the table.
func (s *Switch) view(now uint32) effective.View {
	v := effective.View{Now: now, ChainTime: uint32((s.desired.ChainTime + time.Second - 1) / time.Second), Fewest: true,
		// Where there are TCP VIPs, too, it counts more that connections of a
		// server whose agent alone is gone do not break; hosts pass datagrams
		// by a neighbour that does not answer.
		Datagrams: s.desired.Datagrams && !s.desired.Streams}
	if !s.endAfter.IsZero() {
		v.EndAfter = uint32(min(max(s.endAfter.Unix(), 0), math.MaxUint32))
	}
	by := map[uint16]*hostHealth{}
	names := map[uint16]string{}
	for _, one := range s.desired.Servers {
		v.Servers = append(v.Servers, buckets.Server{Number: one.Number, Weight: one.Weight})
		by[one.Number], names[one.Number] = s.health.servers[one.Name], one.Name
	}
	out := func(number uint16) bool {
		h := by[number]
		if h == nil {
			return false
		}
		if s.lock.on {
			return s.lock.out[names[number]] || h.cut != ""
		}
		return h.state == Down || h.state == Disabled
	}
	// Where nobody is up, those that were taken out and answer are better than
	// those that do not.
	lastResort := true
	for _, one := range s.desired.Servers {
		lastResort = lastResort && (one.Weight == 0 || out(one.Number))
	}
	v.Down = func(number uint16) bool { return out(number) && s.health.dead(by[number]) }
	v.Disabled = func(number uint16) bool {
		return out(number) && !s.health.dead(by[number]) && !(lastResort && by[number].state == Disabled)
	}
	n := s.desired.Table.Len()
	v.Owns = func(number uint16, bucket int) (owned bool, at uint32) {
		if h := by[number]; h != nil && !h.counted.IsZero() {
			return h.owns(bucket, n, s.byBucket), seconds(h.counted)
		}
		return false, 0
	}
	return v
}

// Health takes one round of polls, by server's name, and repoints buckets
// accordingly. Servers that are missing keep their state.
func (s *Switch) Health(reports map[string]Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	was := s.health.out()
	cut := s.cut()
	for name, r := range reports {
		r.cut = cut[name]
		s.health.take(name, r, now)
	}
	if s.desired == nil || !s.desired.Serves() {
		return nil
	}
	if fallen, locks := s.health.cascade(now); locks && !s.lock.on {
		s.lockDown(fallen, was, now)
	}
	// While nobody was ever heard to be up there is nothing to go by.
	s.healthy = s.healthy || s.health.known() && (s.health.anyUp() || s.lock.on)
	before := s.snapshot()
	s.settle()
	err := s.change()
	if err != nil {
		s.restore(before)
	}
	return err
}

// cut are the servers that frames cannot reach, and why: an agent may answer
// by another network all the same.
func (s *Switch) cut() map[string]string {
	cut := map[string]string{}
	if s.desired == nil || s.links == nil {
		return cut
	}
	for _, one := range s.desired.Servers {
		if port := s.plan.ports[one.Number]; s.links.down[port] {
			cut[one.Name] = fmt.Sprintf("its port %s of the bridge is down", s.links.names[port])
		}
	}
	return cut
}

// SetEndAfter says from when on a server's report that it has no connections
// ends chains: once all switches go by the newest table. Zero: no bound; far
// in the future: no report does. It takes effect with the next Health.
func (s *Switch) SetEndAfter(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endAfter = t
}
