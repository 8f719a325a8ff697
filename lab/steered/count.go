package steered

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	choices "github.com/fairlead/fairlead/vip"
)

const (
	// countEvery: the routers are asked so often while tunnels leave a spine.
	countEvery = 50 * time.Millisecond
	// quietShare of what a spine had before is left over: probes, and what is
	// sent once more.
	quietShare = 0.1
	// quietWindows in a row: it was left.
	quietWindows = 3
)

// counts are what leaf1 has sent each spine, and each spine leaf2.
type counts []Spine

// count asks the routers.
func (s *site) count(ctx context.Context) (c counts, err error) {
	leaf, err := s.hops(ctx, "leaf1")
	if err != nil {
		return nil, err
	}
	for _, name := range spines {
		there, err := s.hops(ctx, name)
		if err != nil {
			return nil, err
		}
		sent, forwarded := leaf[s.end("leaf1", name)], there[s.end(name, "leaf2")]
		c = append(c, Spine{Name: name, Packets: packets(sent), Bytes: sent.GetBytes(), Selected: sent.GetSelected(), Forwarded: packets(forwarded)})
	}
	return c, nil
}

func packets(h *fairleadv1.RouterHop) uint64 {
	return h.GetSelected() + h.GetGone() + h.GetHashed() + h.GetSingle()
}

// end is the device by which a node is on its link to another.
func (s *site) end(node, other string) string {
	l := s.fabric.Topology().Links[s.fabric.Link(node, other, 0)]
	for _, e := range l.Ends {
		if e.Node == s.fabric.Node(node) {
			return e.Device
		}
	}
	return ""
}

// hops are a router's next hops, by device: all others are over links of two.
func (s *site) hops(ctx context.Context, router string) (map[string]*fairleadv1.RouterHop, error) {
	status, err := s.routers[router].GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return nil, fmt.Errorf("ask router %s: %w", router, err)
	}
	hops := map[string]*fairleadv1.RouterHop{}
	for _, h := range status.Msg.Router.GetHops() {
		hops[h.Interface] = sum(hops[h.Interface], h)
	}
	return hops, nil
}

func sum(a, b *fairleadv1.RouterHop) *fairleadv1.RouterHop {
	return &fairleadv1.RouterHop{Selected: a.GetSelected() + b.Selected, Gone: a.GetGone() + b.Gone, Hashed: a.GetHashed() + b.Hashed,
		Single: a.GetSingle() + b.Single, Bytes: a.GetBytes() + b.Bytes}
}

// since is what was counted after the counts before. A counter that went back
// began anew with its hop.
func (c counts) since(before counts) counts {
	out := make(counts, len(c))
	less := func(a, b uint64) uint64 {
		if a < b {
			return a
		}
		return a - b
	}
	for i, x := range c {
		b := before[i]
		out[i] = Spine{Name: x.Name, Packets: less(x.Packets, b.Packets), Bytes: less(x.Bytes, b.Bytes),
			Selected: less(x.Selected, b.Selected), Forwarded: less(x.Forwarded, b.Forwarded)}
	}
	return out
}

// phase begins a phase and follows it to its end.
func (s *site) phase(ctx context.Context, l *load, steer, name string, begin func() error, leaves, settles bool) (*Phase, error) {
	p := &Phase{Name: name}
	before, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := begin(); err != nil {
		return nil, err
	}
	w := l.watch()
	left := leaving{usual: s.usual * quietShare, last: before, at: began}
	leaves = leaves && steer != choices.SteerOff
	if settles && steer != choices.SteerOff {
		if err := s.settle(ctx, func(now time.Time) { w.step(l, now) }); err != nil {
			return nil, err
		}
	}
	end := time.Now().Add(s.o.Phase)
	err = follow(ctx, func(now time.Time) (bool, error) {
		w.step(l, now)
		if !leaves || left.after > 0 {
			return now.After(end), nil
		}
		return now.After(end), left.step(ctx, s, began)
	})
	if err != nil {
		return nil, err
	}
	p.Seconds = time.Since(began).Seconds()
	after, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	p.Spines = after.since(before)
	if name == "healthy" {
		s.usual = float64(p.Spines[0].Bytes) / p.Seconds
	}
	if leaves {
		seconds := -1.0
		if left.after > 0 {
			seconds = left.after.Seconds()
		}
		p.LeftAfter = &seconds
	}
	w.into(p, l)
	return p, nil
}

// follow looks again and again until look has seen enough.
func follow(ctx context.Context, look func(now time.Time) (enough bool, err error)) error {
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			if enough, err := look(now); err != nil || enough {
				return err
			}
		}
	}
}

// settle follows the connections until tunnels may take every path again: that is
// a part of the phase, in which nothing may stall either.
func (s *site) settle(ctx context.Context, look func(now time.Time)) error {
	end := time.Now().Add(readyWait)
	return follow(ctx, func(now time.Time) (whole bool, err error) {
		look(now)
		why := s.notWhole(ctx)
		if why != "" && now.After(end) {
			return false, fmt.Errorf("not all paths are used again: %s", why)
		}
		return why == "", nil
	})
}

// leaving finds the moment from which on the bad spine is sent next to nothing.
type leaving struct {
	usual float64 // bytes a second that are next to nothing
	last  counts
	at    time.Time
	quiet time.Time // since when it is
	n     int
	after time.Duration // 0: not yet
}

func (f *leaving) step(ctx context.Context, s *site, began time.Time) error {
	c, err := s.count(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	rate := float64(c.since(f.last)[0].Bytes) / now.Sub(f.at).Seconds()
	switch {
	case rate > f.usual:
		f.n = 0
	case f.n == 0:
		f.n, f.quiet = 1, f.at
	default:
		f.n++
	}
	if f.n >= quietWindows {
		f.after = max(f.quiet.Sub(began), time.Millisecond)
	}
	f.last, f.at = c, now
	return nil
}
