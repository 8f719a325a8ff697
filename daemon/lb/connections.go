package lb

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/kernel/lb"
)

// Bounds of GetConnections.
const (
	mostConnections    = 1 << 16
	defaultConnections = 1000
	longestRate        = 10 * time.Second
)

// states are the words that a list may be asked for.
var states = []string{"new", "live"}

// orders of a list: what is sorted by, most first.
var orders = map[string]func(c *fairleadv1.Connection) float64{
	"packets":     func(c *fairleadv1.Connection) float64 { return float64(c.Packets) },
	"bytes":       func(c *fairleadv1.Connection) float64 { return float64(c.Bytes) },
	"packet_rate": func(c *fairleadv1.Connection) float64 { return c.PacketRate },
	"byte_rate":   func(c *fairleadv1.Connection) float64 { return c.ByteRate },
	"age":         func(c *fairleadv1.Connection) float64 { return float64(c.AgeMs) },
	"idle":        func(c *fairleadv1.Connection) float64 { return float64(c.IdleMs) },
}

// view is a request of GetConnections that can be answered.
type view struct {
	*fairleadv1.GetConnectionsRequest
	client netip.Prefix
	by     func(*fairleadv1.Connection) float64
	most   int
	rate   time.Duration
	sumOf  func(c *fairleadv1.Connection, client netip.Addr) string
}

func wrongf(format string, args ...any) error {
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf(format, args...))
}

// viewOf says what is wrong with a request, if anything.
func viewOf(r *fairleadv1.GetConnectionsRequest) (*view, error) {
	v := &view{GetConnectionsRequest: r, most: int(cmp.Or(r.Most, defaultConnections)), rate: time.Duration(r.RateMs) * time.Millisecond}
	var err error
	switch {
	case r.Client == "":
	case strings.Contains(r.Client, "/"):
		v.client, err = netip.ParsePrefix(r.Client)
	default:
		var a netip.Addr
		if a, err = netip.ParseAddr(r.Client); err == nil {
			v.client = netip.PrefixFrom(a, a.BitLen())
		}
	}
	if err != nil {
		return nil, wrongf("client %q: must be an address or a prefix, such as 203.0.113.0/24", r.Client)
	}
	if r.State != "" && !slices.Contains(states, r.State) {
		return nil, wrongf("state %q: must be %s", r.State, strings.Join(states, ", "))
	}
	if v.by = orders[cmp.Or(r.Order, "bytes")]; v.by == nil {
		return nil, wrongf("order %q: must be packets, bytes, packet_rate, byte_rate, age or idle", r.Order)
	}
	if strings.HasSuffix(r.Order, "_rate") && v.rate == 0 {
		return nil, wrongf("order %s needs rates: say over how long, in rate_ms", r.Order)
	}
	if v.most > mostConnections {
		return nil, wrongf("most %d: at most %d; sum_by sums all", r.Most, mostConnections)
	}
	if v.rate > longestRate {
		return nil, wrongf("rate_ms %d: at most %d", r.RateMs, longestRate.Milliseconds())
	}
	bits4, bits6 := int(cmp.Or(r.ClientBits4, 24)), int(cmp.Or(r.ClientBits6, 48))
	if bits4 > 32 || bits6 > 128 {
		return nil, wrongf("client_bits4 %d, client_bits6 %d: at most 32 and 128", r.ClientBits4, r.ClientBits6)
	}
	switch r.SumBy {
	case "":
	case "server":
		v.sumOf = func(c *fairleadv1.Connection, _ netip.Addr) string { return cmp.Or(c.Server, "(none yet)") }
	case "vip":
		v.sumOf = func(c *fairleadv1.Connection, _ netip.Addr) string { return c.Vip }
	case "client":
		v.sumOf = func(_ *fairleadv1.Connection, a netip.Addr) string {
			bits := bits4
			if a.Is6() {
				bits = bits6
			}
			return netip.PrefixFrom(a, bits).Masked().String()
		}
	default:
		return nil, wrongf("sum_by %q: must be server, client or vip", r.SumBy)
	}
	return v, nil
}

// matches: it is asked for.
func (v *view) matches(c *lb.Connection, vip, server string) bool {
	return (v.Vip == "" || v.Vip == vip) && (v.Server == "" || v.Server == server) &&
		(!v.client.IsValid() || v.client.Contains(c.Client.Addr())) &&
		(v.State == "" || v.State == stateOf(c))
}

func stateOf(c *lb.Connection) string { return strings.TrimPrefix(c.State.String(), "seat_") }

// GetConnections is what this balancer knows of each connection.
func (s service) GetConnections(ctx context.Context, req *connect.Request[fairleadv1.GetConnectionsRequest]) (*connect.Response[fairleadv1.GetConnectionsResponse], error) {
	v, err := viewOf(req.Msg)
	if err != nil {
		return nil, err
	}
	a := s.Assignment()
	if a == nil {
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s has no assignment yet", s.Name))
	}
	names := newNames(a)
	if err := names.check(v); err != nil {
		return nil, err
	}
	var before map[uint32]counted
	began := time.Now()
	if v.rate > 0 {
		if before, err = countedOf(s.b.lb, v, names); err != nil {
			return nil, member.Coded(fmt.Errorf("read connections: %w", err))
		}
		if !daemon.Sleep(ctx, v.rate) {
			return nil, ctx.Err()
		}
	}
	resp := &fairleadv1.GetConnectionsResponse{RateMs: uint32(time.Since(began).Milliseconds())}
	seconds := time.Since(began).Seconds()
	if v.rate == 0 {
		resp.RateMs = 0
	}
	top, sums := newTop(v), map[string]*fairleadv1.ConnectionSum{}
	err = s.b.lb.Connections(func(c *lb.Connection) bool {
		resp.Total++
		vip, server := names.of(c)
		if !v.matches(c, vip, server) {
			return ctx.Err() == nil
		}
		resp.Matched++
		m := names.message(c, vip, server)
		if b, ok := before[c.Seat]; ok && b.client == c.Client && b.packets <= c.Packets {
			m.PacketRate, m.ByteRate = float64(c.Packets-b.packets)/seconds, float64(c.Bytes-b.bytes)/seconds
		} else if v.rate > 0 && c.Age <= time.Since(began) { // it has come since
			m.PacketRate, m.ByteRate = float64(c.Packets)/seconds, float64(c.Bytes)/seconds
		}
		top.add(m)
		if v.sumOf != nil {
			of := v.sumOf(m, c.Client.Addr())
			sum := sums[of]
			if sum == nil {
				sum = &fairleadv1.ConnectionSum{Of: of}
				sums[of] = sum
			}
			sum.Connections++
			sum.Packets, sum.Bytes = sum.Packets+c.Packets, sum.Bytes+c.Bytes
			sum.PacketRate, sum.ByteRate = sum.PacketRate+m.PacketRate, sum.ByteRate+m.ByteRate
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, member.Coded(fmt.Errorf("read connections: %w", err))
	}
	resp.Connections = top.list()
	for _, sum := range sums {
		resp.Sums = append(resp.Sums, sum)
	}
	slices.SortFunc(resp.Sums, func(a, b *fairleadv1.ConnectionSum) int {
		return cmp.Or(cmp.Compare(b.Connections, a.Connections), cmp.Compare(a.Of, b.Of))
	})
	return connect.NewResponse(resp), nil
}

func (n *names) message(c *lb.Connection, vip, server string) *fairleadv1.Connection {
	m := &fairleadv1.Connection{Vip: vip, Client: c.Client.String(), Server: server, State: stateOf(c),
		AgeMs: uint64(max(c.Age, 0).Milliseconds()), IdleMs: uint64(c.Idle.Milliseconds()), Packets: c.Packets, Bytes: c.Bytes, Seat: c.Seat}
	if c.Server.IsValid() {
		m.Slot, m.Address = c.Slot, c.Server.String()
	}
	if c.Moved {
		m.Home = n.at(c.VIP, c.Home)
		m.HomeAddress = c.HomeServer.String()
	}
	return m
}

// counted is what a seat's connection had counted.
type counted struct {
	client         netip.AddrPort
	packets, bytes uint64
}

func countedOf(plane *lb.LB, v *view, n *names) (map[uint32]counted, error) {
	all := map[uint32]counted{}
	err := plane.Connections(func(c *lb.Connection) bool {
		if vip, server := n.of(c); v.matches(c, vip, server) || v.State != "" {
			all[c.Seat] = counted{c.Client, c.Packets, c.Bytes}
		}
		return true
	})
	return all, err
}

// names are those of the assignment.
type names struct {
	a    *controller.Assignment
	vips map[uint32]*controller.VIP
}

func newNames(a *controller.Assignment) *names {
	n := &names{a, map[uint32]*controller.VIP{}}
	for i := range a.VIPs {
		n.vips[a.VIPs[i].ID] = &a.VIPs[i]
	}
	return n
}

func (n *names) of(c *lb.Connection) (vip, server string) {
	v := n.vips[c.VIP]
	if v == nil {
		return fmt.Sprintf("id %d", c.VIP), ""
	}
	return v.Name, n.at(c.VIP, c.Slot)
}

// at is the server at a slot of a VIP.
func (n *names) at(vip, slot uint32) string {
	if v := n.vips[vip]; v != nil {
		for i := range v.Slots {
			if uint32(v.Slots[i].Number) == slot {
				return v.Slots[i].Server
			}
		}
	}
	return ""
}

// check says where there is no such VIP or server, or none whose connections sit.
func (n *names) check(v *view) error {
	var sit []string
	server := v.Server == ""
	for i := range n.a.VIPs {
		vip := &n.a.VIPs[i]
		if vip.SeatBits > 0 {
			sit = append(sit, vip.Name)
		}
		if vip.Name == v.Vip && vip.SeatBits == 0 {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("vip %s: scheme %s keeps no state of connections; cheetah-stateful does", vip.Name, vip.Scheme))
		}
		server = server || slices.ContainsFunc(vip.Slots, func(s controller.Slot) bool { return s.Server == v.Server })
	}
	switch {
	case len(sit) == 0:
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("no VIP has scheme cheetah-stateful, which alone keeps state of each connection"))
	case v.Vip != "" && !slices.Contains(sit, v.Vip):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("vip %s: there is none; of scheme cheetah-stateful there are %s", v.Vip, strings.Join(sit, ", ")))
	case !server:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("server %s: it serves no VIP", v.Server))
	}
	return nil
}

// top keeps the first of an order, so that a million connections are no million messages.
type top struct {
	v   *view
	all []*fairleadv1.Connection
}

func newTop(v *view) *top { return &top{v: v} }

func (t *top) add(c *fairleadv1.Connection) {
	if t.all = append(t.all, c); len(t.all) >= 2*t.v.most {
		t.cut()
	}
}

func (t *top) cut() {
	slices.SortStableFunc(t.all, func(a, b *fairleadv1.Connection) int {
		return cmp.Or(cmp.Compare(t.v.by(b), t.v.by(a)), cmp.Compare(a.Client, b.Client))
	})
	t.all = t.all[:min(len(t.all), t.v.most)]
}

func (t *top) list() []*fairleadv1.Connection {
	t.cut()
	return t.all
}
