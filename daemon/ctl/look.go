package ctl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// What only looks.

const (
	// usualHistory and mostHistory are how many versions GetHistory and
	// WatchEvents tell of.
	usualHistory, mostHistory = 20, 1000
	// lookTimeout bounds what is asked of the store.
	lookTimeout = 5 * time.Second
	// agentTimeout bounds what is asked of one agent, and agentsAtOnce how many are
	// asked at a time.
	agentTimeout = 3 * time.Second
	agentsAtOnce = 32
)

func (s service) GetHistory(ctx context.Context, req *connect.Request[fairleadv1.GetHistoryRequest]) (*connect.Response[fairleadv1.GetHistoryResponse], error) {
	last := uint64(req.Msg.Last)
	switch {
	case last == 0:
		last = usualHistory
	case last > mostHistory:
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("last: %d: at most %d in one call", last, mostHistory))
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	head, err := s.ledger.Head(ctx)
	if err != nil {
		return nil, unread(err)
	}
	records, err := s.ledger.History(ctx, head.Version+1-min(last, head.Version), head.Version)
	if err != nil {
		return nil, unread(err)
	}
	resp := &fairleadv1.GetHistoryResponse{}
	for _, r := range records {
		resp.Versions = append(resp.Versions, &fairleadv1.VersionRecord{Version: r.Version, AtUnixMs: r.At.UnixMilli(), Who: r.Who, Changes: r.What, Digest: r.Digest})
	}
	return connect.NewResponse(resp), nil
}

func (s service) GetControllers(ctx context.Context, _ *connect.Request[fairleadv1.GetControllersRequest]) (*connect.Response[fairleadv1.GetControllersResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	there, err := s.ledger.Controllers(ctx)
	if err != nil {
		return nil, unread(err)
	}
	leader, err := store.Leader(ctx, s.store, rollout.Election)
	if err != nil {
		return nil, unread(err)
	}
	head, err := s.ledger.Head(ctx)
	if err != nil {
		return nil, unread(err)
	}
	reports, err := s.ledger.Reports(ctx)
	if err != nil {
		return nil, unread(err)
	}
	resp := &fairleadv1.GetControllersResponse{Version: head.Version, InForce: inForce(head, reports)}
	if head.Version > 0 {
		records, err := s.ledger.History(ctx, head.Version, head.Version)
		if err != nil {
			return nil, unread(err)
		}
		for _, r := range records {
			if r.Version == head.Version {
				resp.Digest = r.Digest
			}
		}
	}
	for _, c := range s.config.Load().Controllers {
		resp.Controllers = append(resp.Controllers, &fairleadv1.ControllerStatus{Name: c.Name, Api: c.API})
	}
	for name, c := range there {
		i := slices.IndexFunc(resp.Controllers, func(c *fairleadv1.ControllerStatus) bool { return c.Name == name })
		if i < 0 {
			i = len(resp.Controllers)
			resp.Controllers = append(resp.Controllers, nil)
		}
		resp.Controllers[i] = &fairleadv1.ControllerStatus{Name: name, Alive: true, Leads: name == leader, Api: c.API, Program: c.Program,
			StartedUnixMs: daemon.UnixMS(c.Started), StoreBytes: c.StoreBytes, Warnings: c.Warnings}
		if name == s.Name { // of what only this answer knows
			resp.Controllers[i].Warnings = append(slices.Clone(c.Warnings), waiting(reports)...)
		}
	}
	return connect.NewResponse(resp), nil
}

// waiting warns of daemons that no configuration names: nobody asks them, since it would say
// where they answer.
func waiting(reports map[string]ledger.Report) (warnings []string) {
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		if r := reports[name]; r.Waits {
			warnings = append(warnings, unnamed(name, r))
		}
	}
	return warnings
}

// unnamed is what a daemon called name, whose report is r, waits for.
func unnamed(name string, r ledger.Report) string {
	if r.Error != "" {
		return fmt.Sprintf("%s waits, as it cannot go by the configuration in the store: %s; put that right and `fairlead apply`, or stop it", name, r.Error)
	}
	section := map[rollout.Kind]string{rollout.Host: "servers", rollout.Balancer: "balancers", rollout.Switch: "switches"}[rollout.Kind(r.Kind)]
	return fmt.Sprintf("%s waits: the configuration in the store does not name it under %s; write it there and `fairlead apply`, or stop it", name, section)
}

// inForce: every daemon that lives goes by the head, but those that wait for a configuration
// that they are in.
func inForce(head ledger.Head, reports map[string]ledger.Report) bool {
	for _, r := range reports {
		if r.Version != head.Version && !r.Waits {
			return false
		}
	}
	return head.Version > 0 && head.Turn >= rollout.Kinds
}

// newest is the version that was agreed on last.
func (c *ctl) newest(ctx context.Context) (*controller.Assignment, error) {
	head, err := c.ledger.Head(ctx)
	if err != nil {
		return nil, err
	}
	if head.Version == 0 {
		return nil, controller.Refusal{"the store is empty; begin with `fairlead apply`"}
	}
	a, err := c.ledger.Read(ctx, head.Version, c.have.Load())
	if err == nil {
		c.have.Store(a)
	}
	return a, err
}

func (s service) Describe(ctx context.Context, req *connect.Request[fairleadv1.DescribeRequest]) (*connect.Response[fairleadv1.DescribeResponse], error) {
	if (req.Msg.Vip == "") == (req.Msg.Server == "") {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("name one of vip and server"))
	}
	asking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	a, err := s.newest(asking)
	if err != nil {
		return nil, unread(err)
	}
	reports, err := s.ledger.Reports(asking)
	if err != nil {
		return nil, unread(err)
	}
	resp := &fairleadv1.DescribeResponse{Version: a.Version}
	agents := map[string]string{} // where they answer
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if d := described(v, req.Msg); d != nil {
			resp.Vips = append(resp.Vips, d)
			for _, slot := range v.Slots {
				if req.Msg.Server == "" || slot.Server == req.Msg.Server {
					agents[slot.Server] = slot.API
				}
			}
		}
	}
	if len(resp.Vips) == 0 {
		return nil, connect.NewError(connect.CodeNotFound, nobody(a, req.Msg))
	}
	cfg, err := s.coordinator(ctx).Wanted(asking)
	if err != nil {
		return nil, unread(err)
	}
	checkers := make(chan []seen, 1)
	go func() { checkers <- s.checkers(ctx, cfg) }()
	live, health := s.live(ctx, a, agents), <-checkers
	for _, d := range resp.Vips {
		for _, slot := range d.Slots {
			n, why := live.count(d.Name, slot.Server)
			slot.Connections, slot.Counted, slot.Uncounted = n, why == "", why
			slot.Health = healthOf(health, d.Name, slot.Number, slot.Server)
		}
	}
	for name := range agents {
		resp.Daemons = append(resp.Daemons, daemonStatus(name, "host", reports))
	}
	slices.SortFunc(resp.Daemons, func(a, b *fairleadv1.DaemonStatus) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return connect.NewResponse(resp), nil
}

func daemonStatus(name, role string, reports map[string]ledger.Report) *fairleadv1.DaemonStatus {
	r, alive := reports[name]
	return &fairleadv1.DaemonStatus{Name: name, Role: role, Alive: alive, Version: r.Version, Error: r.Error}
}

// described is v, if it is asked for, with the slots that are; nil: it is not.
func described(v *controller.VIP, asked *fairleadv1.DescribeRequest) *fairleadv1.DescribedVIP {
	if asked.Vip != "" && v.Name != asked.Vip {
		return nil
	}
	d := &fairleadv1.DescribedVIP{Name: v.Name, Address: v.Address.String(), Port: uint32(v.Port), Protocol: string(v.Protocol),
		Scheme: string(v.Scheme), Policy: string(v.Policy), Forwarding: string(v.Forwarding)}
	for _, slot := range v.Slots {
		if asked.Server == "" || slot.Server == asked.Server {
			d.Slots = append(d.Slots, &fairleadv1.DescribedSlot{Number: uint32(slot.Number), Server: slot.Server, Address: slot.Address.String(),
				Weight: uint32(slot.Weight), State: string(slot.State), RestUntilUnixMs: daemon.UnixMS(slot.RestUntil)})
		}
	}
	if asked.Server != "" && len(d.Slots) == 0 {
		return nil
	}
	return d
}

func nobody(a *controller.Assignment, asked *fairleadv1.DescribeRequest) error {
	var names []string
	for _, v := range a.VIPs {
		names = append(names, v.Name)
	}
	if len(names) > 20 {
		names = append(names[:20:20], fmt.Sprintf("and %d more", len(names)-20))
	}
	if asked.Vip != "" {
		return fmt.Errorf("no vip %s; there are %v", asked.Vip, names)
	}
	return fmt.Errorf("no vip has a server %s; `fairlead describe VIP` names those of one (%v)", asked.Server, names)
}

// counted is what agents count.
type counted struct {
	live map[counts]uint64
	why  map[string]string // they do not, by server
}

type counts struct{ vip, server string }

func (c *counted) count(vip, server string) (n uint64, why string) {
	return c.live[counts{vip, server}], c.why[server]
}

// live asks agents (where they answer, by server) what connections are established.
func (c *ctl) live(ctx context.Context, a *controller.Assignment, agents map[string]string) *counted {
	all := &counted{live: map[counts]uint64{}, why: map[string]string{}}
	names := map[uint32]string{}
	for _, v := range a.VIPs {
		names[v.ID] = v.Name
	}
	type answer struct {
		server string
		vips   map[uint32]uint64
		err    error
	}
	answers := make(chan answer)
	room := make(chan struct{}, agentsAtOnce)
	for server, at := range agents {
		go func() {
			room <- struct{}{}
			vips, err := c.liveAt(ctx, at)
			<-room
			answers <- answer{server, vips, err}
		}()
	}
	for range agents {
		got := <-answers
		if got.err != nil {
			all.why[got.server] = api.ErrorText(got.err)
		}
		for id, n := range got.vips {
			all.live[counts{names[id], got.server}] = n
		}
	}
	return all
}

func (c *ctl) liveAt(ctx context.Context, at string) (map[uint32]uint64, error) {
	if at == config.NoAgent || at == "" {
		return nil, errors.New("it has no agent, which would count them")
	}
	agent, err := c.clients.Dial(at, c.config.Load().TLS)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	live, err := agent.GetLive(ctx, connect.NewRequest(&fairleadv1.GetLiveRequest{}))
	if err != nil {
		return nil, err
	}
	vips := map[uint32]uint64{}
	for _, v := range live.Msg.Vips {
		vips[v.Id] = v.NoCookie
		for _, e := range v.Epochs {
			vips[v.Id] += e.Connections
		}
	}
	owned, err := agent.GetServing(ctx, connect.NewRequest(&fairleadv1.GetServingRequest{}))
	if err != nil {
		return nil, err
	}
	for _, v := range owned.Msg.Vips {
		if rollout.Counted(v) {
			vips[v.VipId] = max(vips[v.VipId], v.Connections)
		}
	}
	return vips, nil
}
