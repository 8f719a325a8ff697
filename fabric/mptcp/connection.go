package mptcp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// A peer that takes no subflow is asked again after firstPause; each further
// refusal doubles that, up to longestPause.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// firstLook is how long a subflow that was asked for may be missing from the
// kernel's list.
const firstLook = 100 * time.Millisecond

// goneAfter is how long a subflow must be missing from the kernel's list to be
// gone for sure: a list of many sockets is made in parts and may miss one.
const goneAfter = time.Second

// named is what the kernel calls a local address and port of a connection.
type named struct {
	id   uint8     // 1 to 255; the first subflow's is 0
	seen time.Time // when it was last in the kernel's list, or asked for
}

// key is a subflow among those of its connection.
type key struct{ local, remote netip.AddrPort }

func (s *Subflow) key() key { return key{s.Local, s.Remote} }

// connection is one of Multipath TCP that this side opened.
type connection struct {
	token    uint32
	from, to int // nodes
	list     []Subflow
	// hops are the subflows' paths, as far as they can be known.
	hops map[pathsel.Flow][]paths.Hop
	own  uses
	// acked is what the peer had acknowledged at the last look, worked when it
	// was last seen to have acknowledged more.
	acked  map[key]uint64
	worked map[key]time.Time
	// asked are subflows that are not open yet.
	asked map[key]time.Time
	// ids are the names of local addresses and ports, of those that are there
	// and those that were asked for; id is the last that was given.
	ids map[key]named
	id  uint8
	// unfit are paths that cannot be taken, by index, until then.
	unfit map[int]time.Time
	// failed counts the subflows that were lost on links.
	failed uses

	refusals  int // in a row
	pauseTill time.Time
	lastError unix.Errno
	lastReset uint32
}

func newConnection(token uint32) *connection {
	return &connection{token: token, hops: map[pathsel.Flow][]paths.Hop{}, asked: map[key]time.Time{}, ids: map[key]named{}, acked: map[key]uint64{}, worked: map[key]time.Time{}, unfit: map[int]time.Time{}, failed: uses{}}
}

// place finds the connection's ends in the fabric; false: it has none there,
// or no ports lead over paths.
func (c *connection) place(n *paths.Net, list []Subflow) bool {
	// The kernel sets the labels of TCP itself (SetNet says so).
	if n.Selector().Field(list[0].Local.Addr().Is6()) == pathsel.FlowLabel {
		return false
	}
	from, err := n.Place(list[0].Local.Addr().String())
	if err != nil {
		return false
	}
	to, err := n.Place(list[0].Remote.Addr().String())
	if err != nil || from.Node == to.Node {
		return false
	}
	c.from, c.to = from.Node, to.Node
	return true
}

// update takes over what the kernel has of the connection and says how many
// subflows that were asked for ended before they were open.
func (c *connection) update(m *Manager, list []Subflow, now time.Time) (refused int) {
	c.list, c.own = list, uses{}
	there, acked, worked := map[key]bool{}, map[key]uint64{}, map[key]time.Time{}
	for i := range list {
		s := &list[i]
		k := s.key()
		there[k] = true
		acked[k] = s.Info.Acked
		if s.LocalID > 0 {
			c.ids[k] = named{s.LocalID, now}
		}
		worked[k] = c.worked[k]
		if before, ok := c.acked[k]; s.Established && s.Info.Acked > before && ok {
			worked[k] = now
		}
		if s.Established && c.asked[k] != (time.Time{}) {
			delete(c.asked, k)
			c.refusals = 0
		}
		f := s.flow()
		if _, ok := c.hops[f]; !ok {
			p, _, known, err := m.net.Of(f, 0)
			if err != nil || !known {
				p.Hops = nil
			}
			c.hops[f] = p.Hops
		}
		if !s.ends() {
			c.own.add(c.hops[f])
		}
	}
	c.acked, c.worked = acked, worked
	for k, at := range c.asked {
		if !there[k] && now.Sub(at) > firstLook {
			delete(c.asked, k)
			refused++
		}
	}
	c.forget(m, now)
	if refused > 0 {
		c.refused(m, now)
	}
	return refused
}

// forget gives back the names of subflows that are gone: the kernel keeps those
// that the peer refused or reset, and there are 255.
func (c *connection) forget(m *Manager, now time.Time) {
	for k, n := range c.ids {
		if now.Sub(n.seen) < goneAfter {
			continue
		}
		delete(c.ids, k)
		// It has none of those that this side ended.
		if err := m.kernel.remove(c.token, n.id); err != nil {
			m.o.Log.Debug("name not given back", "token", c.token, "id", n.id, "error", err)
		}
	}
}

// nextID is the name after the last one that nobody has. The one that was
// given back last comes last: that it means nothing any more may reach the peer late.
func (c *connection) nextID() uint8 {
	used := map[uint8]bool{}
	for _, n := range c.ids {
		used[n.id] = true
	}
	for range 255 {
		if c.id = c.id%255 + 1; !used[c.id] {
			break
		}
	}
	return c.id
}

// evidence is how long an acknowledgement shows that a path works.
const evidence = time.Second

// works tells whether the subflow's path was seen to work just now.
func (c *connection) works(s *Subflow, now time.Time) bool {
	return s.Established && s.Info.Backoff == 0 && now.Sub(c.worked[s.key()]) < evidence
}

// pause stops the opening of subflows for a while, longer each time in a row.
func (c *connection) pause(now time.Time) (pause time.Duration) {
	pause = min(firstPause<<min(c.refusals, 10), longestPause)
	c.refusals++
	c.pauseTill = now.Add(pause)
	return pause
}

// refused pauses because the peer took none.
func (c *connection) refused(m *Manager, now time.Time) {
	pause := c.pause(now)
	if c.refusals == 1 && m.said.first("refused "+c.list[0].Remote.Addr().String(), now) {
		about := []any{"peer", c.list[0].Remote, "subflows", len(c.list), "again", pause}
		if c.lastError != 0 {
			about = append(about, "error", c.lastError.Error())
		}
		if c.lastReset != 0 {
			about = append(about, "reset", c.lastReset)
		}
		m.o.Log.Warn("the peer takes no more subflows, or somebody on the way lets none through; there, `ip mptcp limits set subflows 8` allows them, or `fairlead mptcp`", about...)
	}
}

// tend opens the subflows that the connection lacks and ends those that fail.
func (m *Manager) tend(c *connection, total uses, all []Subflow, now time.Time) error {
	w := m.waysOf(c)
	if w == nil {
		return nil
	}
	var failing []*Subflow
	alive, open := 0, false
	for i := range c.list {
		s := &c.list[i]
		switch {
		case s.fails():
			failing = append(failing, s)
		case !s.ends():
			alive++
			open = open || s.Established
		}
	}
	if (open || len(failing) > 0) && now.After(c.pauseTill) {
		m.complete(c, w, alive, total, all, now)
	}
	var err error
	// The last one is left: its end would be the connection's.
	if open {
		for _, s := range failing {
			m.o.Log.Info("subflow ended: its path does not answer", "token", c.token, "local", s.Local, "remote", s.Remote)
			m.counters.Failed++
			c.failed.add(c.hops[s.flow()])
			delete(c.asked, s.key())
			err = errors.Join(err, m.end(s))
		}
	}
	return err
}

// complete opens what the connection lacks. An error pauses the connection,
// longer each time in a row.
func (m *Manager) complete(c *connection, w *ways, alive int, total uses, all []Subflow, now time.Time) {
	err := m.fill(c, w, alive, total, all, now)
	if err == nil {
		err = m.spread(c, w, alive, total, all, now)
	}
	if err == nil {
		return
	}
	pause := c.pause(now)
	if errors.Is(err, errGone) {
		m.o.Log.Debug("no further subflow", "token", c.token, "error", err)
	} else if m.said.first(err.Error(), now) {
		m.o.Log.Warn("a connection gets no further subflow", "error", err, "again", pause)
	}
}

// most is how many subflows a connection may have.
func (m *Manager) most() int {
	if m.o.Subflows > 0 {
		return m.o.Subflows
	}
	return MaxSubflows
}

// view is what the connection looks for paths by.
func (m *Manager) view(c *connection, total uses, now time.Time) view {
	others := uses{}
	for h, n := range total {
		others[h] = n - c.own[h]
	}
	return view{own: c.own, others: others, failed: c.failed,
		unfit: func(path int) bool { return now.Before(c.unfit[path]) },
		avoid: func(h paths.Hop) bool { return m.avoided.has(h, now) }}
}

// spread replaces, one at a time, a subflow that shares links by one over a
// path that is free again: it opens that one first, and ends the other when all
// are open.
func (m *Manager) spread(c *connection, w *ways, alive int, total uses, all []Subflow, now time.Time) error {
	s := c.sharing(w)
	if s == nil || m.o.RandomPorts || alive < m.most() {
		return nil
	}
	if alive > m.most() {
		m.o.Log.Info("subflow ended: another path was free again", "token", c.token, "local", s.Local, "remote", s.Remote)
		return m.end(s)
	}
	i, shared, ok := w.next(m.view(c, total, now))
	if !ok || shared > 0 {
		return nil
	}
	return m.open(c, &w.paths[i], all, now)
}

// sharing is the last subflow that shares a link with another one, but for
// links that all paths share; nil: none does, or not all subflows are open.
func (c *connection) sharing(w *ways) (last *Subflow) {
	for i := range c.list {
		s := &c.list[i]
		if s.fails() || !s.ends() && !s.Established {
			return nil
		}
		for _, h := range c.hops[s.flow()] {
			if c.own[h] > 1 && !w.common[h] && !s.ends() {
				last = s
			}
		}
	}
	return last
}

// end ends a subflow. Earlier kernels have EINVAL for connections that are gone.
func (m *Manager) end(s *Subflow) error {
	if err := m.kernel.destroy(s); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("end subflow from %s to %s: %w", s.Local, s.Remote, err)
	}
	return nil
}
