// Package host is `fairlead host`, the agent on a server.
package host

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/kernel/host"
	"github.com/fairlead/fairlead/vip"
)

// Run is `fairlead host`. It returns when ctx ends (nil) or when the daemon cannot
// go on.
func Run(ctx context.Context, o member.Options) error {
	h := newAgent()
	return member.Run(ctx, o, role(h, h.open))
}

// role is a host's, but for what it opens.
func role(h *agent, open func(*member.Member) (member.Opened, error)) member.Role {
	return member.Role{
		Is: config.RoleHost, Status: fairleadv1.Role_ROLE_HOST, What: "a host's agent",
		Counts: true,
		Concerns: func(v *controller.VIP, name string) bool {
			return slices.ContainsFunc(v.Slots, func(s controller.Slot) bool { return s.Server == name })
		},
		Fixed:   func(config.Self) []member.Setting { return nil },
		Service: func(m *member.Member) fairleadv1connect.FairleadHandler { return service{member.Service{Member: m}, h} },
		Metrics: families, Emit: emit,
		Open: open,
	}
}

// agent is the plane of `fairlead host`.
type agent struct {
	name    string
	agent   *host.Agent
	had     hads
	answers *answers
	// life ends when the daemon is told to end; part ends it.
	life context.Context
	part context.CancelFunc
}

func newAgent() *agent {
	h := new(agent)
	h.life, h.part = context.WithCancel(context.Background())
	return h
}

// open loads the programs, or adopts those that are pinned.
func (h *agent) open(m *member.Member) (o member.Opened, err error) {
	h.name = m.Name
	if err = m.Lasting(m.Options.PinDir, m.Options.PrivatePins); err != nil {
		return o, err
	}
	me := m.Self.Server
	interfaces := me.Interfaces
	if len(interfaces) == 0 {
		name, err := config.InterfaceOf(me.Address)
		if err != nil {
			return o, fmt.Errorf("server %s: %w: name the interfaces under servers[].interfaces", m.Name, err)
		}
		interfaces = []string{name}
	}
	h.agent, err = host.Open(host.Options{Name: m.Name, PinDir: m.Options.PinDir, Interfaces: interfaces, Unguarded: m.Unguarded}, m.Log)
	if err != nil {
		return o, err
	}
	h.had.list = h.agent.Connections
	h.answers = openAnswers(m.Config, m.Log)
	return member.Opened{Plane: h, Clock: h.agent, PinDir: h.agent.Status().PinDir, Fabric: h.answers.read}, nil
}

// Apply implements member.Plane.
func (h *agent) Apply(a *controller.Assignment) (time.Time, error) {
	before := h.agent.VIPs()
	err := h.agent.Apply(a.AtAgents())
	if err == nil {
		// Behind the flip: whatever is not on the list is as the new scheme has it.
		if err = h.had.follow(a, h.name, func(vip uint32) bool { return !before[vip] }); err != nil {
			err = fmt.Errorf("version %d is %w: %w", a.Version, controller.ErrInForce, err)
		}
	}
	return time.Time{}, err
}

// Run implements member.Plane.
func (h *agent) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, h.part)()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return h.agent.Run(ctx) })
	g.Go(func() error { return h.answers.run(ctx) })
	return g.Wait()
}

// Close implements member.Plane.
func (h *agent) Close() error {
	h.answers.close()
	return h.agent.Close()
}

// live is the established connections of every VIP that this server is in.
func (h *agent) live(a *controller.Assignment) ([]*fairleadv1.LiveVIP, error) {
	live, err := h.agent.Live()
	if err != nil {
		return nil, fmt.Errorf("count live connections: %w", err)
	}
	var out []*fairleadv1.LiveVIP
	for i := range a.VIPs {
		v := &a.VIPs[i]
		n, ok := live[v.ID]
		if !ok {
			continue
		}
		if i := slotInUse(v.Slots, func(s controller.Slot) (bool, bool) { return s.Server == h.name, s.State == controller.Resting }); i >= 0 {
			earlier, err := h.had.earlier(v)
			if err != nil {
				return nil, err
			}
			out = append(out, &fairleadv1.LiveVIP{Id: v.ID, Name: v.Name, Slot: uint32(v.Slots[i].Number), Server: h.name,
				Epochs: epochs(n), NoCookie: n.NoCookie, Earlier: earlier})
		}
	}
	return out, nil
}

// serving is what the agent says of its VIPs of schemes beamer and faild.
func (h *agent) serving(owned bool) (out []*fairleadv1.ServingVIP) {
	for _, s := range h.agent.Serving(owned) {
		v := &fairleadv1.ServingVIP{
			VipId: s.VIP, Name: s.Name, Slot: uint32(s.Slot), State: member.ServingWord(string(s.State)), Detail: s.Detail,
			Connections: s.Connections, Buckets: uint32(s.Buckets), Owned: s.Owned, Generation: s.Generation, Ended: s.Ended,
		}
		if !s.At.IsZero() {
			v.AgeMs, v.AtUnixMs = uint32(min(time.Since(s.At).Milliseconds()+1, math.MaxUint32)), s.At.UnixMilli()
		}
		out = append(out, v)
	}
	return out
}

// slotInUse is the index of the server's slot that its counts are shown
// under, -1 for none. A server has two while an old one rests: the agent
// counts by VIP, and its connections are shown once, under the one in use.
func slotInUse[S any](slots []S, look func(S) (mine, resting bool)) int {
	found := -1
	for i, s := range slots {
		mine, resting := look(s)
		if !mine {
			continue
		}
		if found < 0 || !resting {
			found = i
		}
	}
	return found
}

func epochs(n host.Live) (out []*fairleadv1.EpochLive) {
	for _, e := range slices.Sorted(maps.Keys(n.Epochs)) {
		out = append(out, &fairleadv1.EpochLive{Epoch: e, Connections: n.Epochs[e]})
	}
	return out
}

// Describe fills in what the agent has in the kernel.
func (h *agent) Describe(a *controller.Assignment, s *fairleadv1.GetStatusResponse) error {
	kernel := h.agent.Status()
	s.PinDir, s.Adopted = kernel.PinDir, kernel.Adopted
	s.Clock.Hz = uint32(kernel.HZ)
	s.Warnings = append(append(s.Warnings, kernel.Warnings...), h.answers.warnings()...)
	for _, i := range kernel.Interfaces {
		s.Interfaces = append(s.Interfaces, &fairleadv1.Interface{
			Name: i.Name, Index: uint32(i.Index), XdpMode: i.Mode, EgressMode: i.Egress, Mtu: uint32(i.MTU),
		})
	}
	counters, err := h.agent.Counters()
	if err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	for _, r := range counters.Reasons {
		s.Reasons = append(s.Reasons, &fairleadv1.Reason{Name: r.Name, Packets: r.Packets, Bytes: r.Bytes})
	}
	live, err := h.agent.Live()
	if err != nil {
		return fmt.Errorf("count live connections: %w", err)
	}
	serving := h.agent.Serving(true)
	for _, v := range s.Vips {
		n := live[v.Id]
		total := n.NoCookie
		for _, c := range n.Epochs {
			total += c
		}
		v.Counters.Live = epochs(n)
		for _, c := range counters.VIPs {
			if c.ID == v.Id {
				v.Counters.Packets, v.Counters.Bytes = c.PacketsIn, c.BytesIn
				v.Counters.PacketsOut, v.Counters.BytesOut = c.PacketsOut, c.BytesOut
				v.Counters.Restored = c.Restored
				h := c.Handshakes
				v.Counters.HandshakesAnswered, v.Counters.HandshakesOpened = h.Answered, h.Opened
				v.Counters.HandshakesStack, v.Counters.HandshakesMptcp = h.Stack+h.Mptcp, h.Mptcp
			}
		}
		i := slotInUse(v.Slots, func(s *fairleadv1.Slot) (bool, bool) {
			return true, s.State == fairleadv1.SlotState_SLOT_STATE_RESTING
		})
		if i >= 0 {
			v.Slots[i].Packets, v.Slots[i].Bytes = v.Counters.Packets, v.Counters.Bytes
			v.Slots[i].Connections = int64(total)
		}
		if vip := a.ByID(v.Id); vip != nil && v.Migration != nil {
			if v.Migration.Earlier, err = h.had.earlier(vip); err != nil {
				return err
			}
		}
		h.describeChains(v, i, kernel, serving)
	}
	return nil
}

// describeChains fills in what is about schemes beamer and faild; i is the slot
// that counts are shown under, -1 for none.
func (h *agent) describeChains(v *fairleadv1.VIP, i int, kernel host.Status, serving []host.Serving) {
	b := v.Buckets
	at := slices.IndexFunc(serving, func(s host.Serving) bool { return s.VIP == v.Id })
	if b == nil || at < 0 {
		return
	}
	s := serving[at]
	v.Serving = member.ServingWord(string(s.State))
	b.GenerationSeen = kernel.Generations[v.Id].Seen
	for _, octet := range s.Owned {
		b.Owned += uint32(bits.OnesCount8(octet))
	}
	for _, p := range kernel.Peers {
		if p.VIP != v.Id || !p.Looked {
			continue
		}
		b.Peers++
		// Faild's packets find their way by the switch.
		if p.Silent || vip.Scheme(v.Scheme).Row().Hops && !p.Hop.Usable() {
			b.PeersUnresolved++
		}
	}
	if i >= 0 {
		v.Slots[i].Connections = int64(s.Connections)
		if s.State != host.ServingUp {
			v.Slots[i].HealthDetail = s.Detail
		}
	}
}
