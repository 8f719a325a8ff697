package mptcp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// fill opens subflows until there are as many as there should be.
func (m *Manager) fill(c *connection, w *ways, alive int, total uses, all []Subflow, now time.Time) error {
	v := m.view(c, total, now)
	for alive < m.most() {
		i, shared, ok := w.next(v)
		if !ok || shared > 0 && m.o.Subflows == 0 {
			return nil
		}
		err := m.open(c, &w.paths[i], all, now)
		switch {
		case errors.Is(err, pathsel.ErrNoSelector), errors.Is(err, pathsel.ErrCollision), errors.Is(err, paths.ErrUnsteered), errors.Is(err, errLocal):
			if m.said.first(err.Error(), now) {
				m.o.Log.Warn("a path cannot be taken", "error", err)
			}
			c.unfit[i] = now.Add(unfitFor)
			if errors.Is(err, errLocal) {
				c.unfit[i] = now.Add(localFor)
			}
			continue
		case err != nil:
			return err
		}
		c.own.add(w.paths[i].Hops)
		total.add(w.paths[i].Hops)
		alive++
	}
	return nil
}

// unfitFor is how long a path is left out that no ports lead over: many are looked
// through, and others may give theirs back. localFor is that of a path that this host
// cannot send over: its address, or a route, may come.
const (
	unfitFor = 10 * time.Minute
	localFor = time.Minute
)

// errLocal is that of paths that this host cannot send over.
var errLocal = errors.New("this host has no such address, or no route from there; correct its addresses in fabric.yaml, or add them to the host")

// errGone is that of connections that have ended meanwhile, or that are the
// kernel's, as they began before programs managed paths.
var errGone = errors.New("the connection is gone, or began before this daemon managed paths")

// tries is how many ports and names are tried for one subflow where others have
// them.
const tries = 16

// open asks the kernel for a subflow over a path.
func (m *Manager) open(c *connection, p *paths.Path, all []Subflow, now time.Time) error {
	first, before := c.list[0], c.id
	var err error
	for range tries {
		var f pathsel.Flow
		if f, err = m.flowOver(c, p, all); err != nil {
			return err
		}
		local, remote := netip.AddrPortFrom(f.Src, f.SrcPort), netip.AddrPortFrom(f.Dst, f.DstPort)
		id := c.nextID()
		err = m.kernel.create(c.token, id, local, remote)
		switch {
		case err == nil:
			m.o.Log.Debug("subflow asked for", "token", c.token, "local", local, "remote", remote, "id", id)
			m.counters.Created++
			c.asked[key{local, remote}], c.ids[key{local, remote}] = now, named{id, now}
			return nil
		case errors.Is(err, unix.EINVAL):
			// Either a manager before this one gave the name to somebody, or the
			// kernel has no such connection that programs manage.
			if m.kernel.remove(c.token, id) != nil {
				return fmt.Errorf("open a subflow to %s: %w (%w)", first.Remote, errGone, err)
			}
		case errors.Is(err, unix.EADDRINUSE):
		case errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOTCONN):
			return nil // the connection ended, or is not open yet
		case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
			return fmt.Errorf("from %s to %s: %w (%w)", f.Src, remote, errLocal, err)
		default:
			return fmt.Errorf("open a subflow to %s: %w", first.Remote, err)
		}
	}
	c.id = before // next time, those that were given back
	return fmt.Errorf("open a subflow to %s: %w", first.Remote, err)
}

// flowOver is a flow that takes the path and that nobody has. Its addresses are
// those of the connection's first subflow, unless they stand on other links
// than the path's.
func (m *Manager) flowOver(c *connection, p *paths.Path, all []Subflow) (pathsel.Flow, error) {
	first := &c.list[0]
	r := paths.Request{Src: p.Src.Addr, Dst: p.Dst.Addr, IPv6: first.Local.Addr().Is6(), DstPort: first.Remote.Port(), Random: rand.Uint64()}
	if a := first.Local.Addr(); !r.Src.IsValid() && !m.standsElsewhere(a, p.Hops[0].Link) {
		r.Src = a
	}
	if a := first.Remote.Addr(); !r.Dst.IsValid() && !m.standsElsewhere(a, p.Hops[len(p.Hops)-1].Link) {
		r.Dst = a
	}
	if m.o.RandomPorts {
		return pathsel.Flow{Src: r.Src, Dst: r.Dst, Proto: paths.TCP, DstPort: r.DstPort, SrcPort: uint16(paths.FirstPort + rand.IntN(paths.LastPort-paths.FirstPort+1))}, nil
	}
	r.Taken = func(f pathsel.Flow) bool {
		if slices.ContainsFunc(all, func(s Subflow) bool { return s.Local.Port() == f.SrcPort && s.Local.Addr() == f.Src }) {
			return true
		}
		_, asked := c.asked[key{netip.AddrPortFrom(f.Src, f.SrcPort), netip.AddrPortFrom(f.Dst, f.DstPort)}]
		return asked
	}
	f, err := m.net.Ports(p, r)
	if err == nil && f.Src.Is6() != r.IPv6 {
		err = fmt.Errorf("from %s to %s: the connection's addresses are of the other family: %w", f.Src, f.Dst, paths.ErrUnsteered)
	}
	return f, err
}

// standsElsewhere tells whether an address belongs to links, and this is none of
// them: packets from it, or to it, take those.
func (m *Manager) standsElsewhere(a netip.Addr, link int) (elsewhere bool) {
	for i, l := range m.net.Fabric().Links {
		for _, e := range l.Ends {
			if e.Address == a {
				if i == link {
					return false
				}
				elsewhere = true
			}
		}
	}
	return elsewhere
}
