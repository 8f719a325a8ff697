package host

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/kernel/host"
	"github.com/fairlead/fairlead/tables"
)

// While a VIP migrates, the agent knows which of its connections were there before:
// it lists its sockets when what is opened from then on is as the new scheme has it,
// and they are those of the list that are there still. One that has its client's address
// and port again counts as the one before, which lasts the longer and breaks nothing.
// After a restart the list is of then, and of more.

// had is what a server had of a VIP when its migration began, or when it came.
type had struct {
	version uint64 // of the migration; 0: it came
	all     map[host.Connection]host.Opened
}

// hads are the lists, by VIP id.
type hads struct {
	mu     sync.Mutex
	of     map[uint32]*had
	looked look // the last
	list   func(netip.AddrPort) (map[host.Connection]host.Opened, error)
}

// look is a VIP's sockets, as they were at a time or later.
type look struct {
	vip uint32
	at  time.Time
	all map[host.Connection]host.Opened
}

// lists: at this stage what is opened is as the new scheme has it.
func lists(v *controller.VIP) bool {
	return v.Migration != nil && (!v.Migration.From.Cookies() || v.Unstamps())
}

// serviceOf is where the sockets of v are.
func serviceOf(v *controller.VIP) netip.AddrPort {
	return netip.AddrPortFrom(v.Address.Unmap(), v.Port)
}

// follow begins the lists of a's VIPs that migrate, or came with cookies, and forgets
// others'.
func (h *hads) follow(a *controller.Assignment, server string, came func(vip uint32) bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := map[uint32]*had{}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		was, version := h.of[v.ID], uint64(0)
		if v.Migration != nil {
			version = v.Migration.Version
		}
		slot, _ := tables.HostSlots(v, server)
		switch {
		case slot == nil, v.Migration != nil && !lists(v):
			continue
		case was != nil && was.version == version:
			next[v.ID] = was
			continue
		case v.Migration == nil && (!v.Cookies() || !came(v.ID)):
			continue
		}
		all, err := h.list(serviceOf(v))
		if err != nil {
			return fmt.Errorf("vip %s: list the connections that are there: %w", v.Name, err)
		}
		next[v.ID] = &had{version, all}
	}
	h.of, h.looked = next, look{}
	return nil
}

// now are v's connections of before that are there still; before there is a list of
// these, all that are there. They are the caller's.
func (h *hads) now(v *controller.VIP) (map[host.Connection]host.Opened, error) {
	asked := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	all, err := h.left(v, asked)
	return maps.Clone(all), err
}

// left is now, of h's own, with h locked. Many balancers ask at once, and have one look at the
// sockets together: one that began after they asked.
func (h *hads) left(v *controller.VIP, asked time.Time) (map[host.Connection]host.Opened, error) {
	if h.looked.vip != v.ID || !h.looked.at.After(asked) {
		at := time.Now()
		all, err := h.list(serviceOf(v))
		if err != nil {
			return nil, fmt.Errorf("vip %s: list connections: %w", v.Name, err)
		}
		h.looked = look{v.ID, at, all}
	}
	list := h.of[v.ID]
	if list == nil {
		return h.looked.all, nil
	}
	for c := range list.all {
		opened, there := h.looked.all[c]
		if list.all[c] = opened; !there {
			delete(list.all, c)
		}
	}
	return list.all, nil
}

// earlier is how many of before are left, nil where v does not migrate or that is not
// known.
func (h *hads) earlier(v *controller.VIP) (*uint64, error) {
	asked := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of[v.ID] == nil || v.Migration == nil {
		return nil, nil
	}
	left, err := h.left(v, asked)
	if err != nil {
		return nil, err
	}
	return new(uint64(len(left))), nil
}

// knows says that there is a list.
func (h *hads) knows(vip uint32) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[vip] != nil
}

// GetHad is the connections that this server has of a VIP that migrates, or came.
func (s service) GetHad(_ context.Context, req *connect.Request[fairleadv1.GetHadRequest]) (*connect.Response[fairleadv1.GetHadResponse], error) {
	a := s.Assignment()
	if a == nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s has no assignment yet", s.h.name))
	}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if v.ID != req.Msg.VipId {
			continue
		}
		if v.Migration == nil && v.Cookies() && !s.h.had.knows(v.ID) {
			break
		}
		all, err := s.h.had.now(v)
		if err != nil {
			return nil, member.Coded(err)
		}
		r := &fairleadv1.GetHadResponse{AssignmentVersion: a.Version}
		for c, opened := range all {
			if opened {
				r.Connections = api.AppendConnection(r.Connections, api.Connection(c))
			} else {
				r.HalfOpen = api.AppendConnection(r.HalfOpen, api.Connection(c))
			}
		}
		return connect.NewResponse(r), nil
	}
	return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s has version %d, in which VIP %d does not migrate, and does not know what it had when that came", s.h.name, a.Version, req.Msg.VipId))
}
