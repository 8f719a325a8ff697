// Package gobgp speaks BGP, by GoBGP in this process.
package gobgp

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/vip"
)

// Options are a speaker's.
type Options struct {
	LocalAS    int
	RouterID   netip.Addr
	HoldTime   time.Duration
	Restart    time.Duration // of graceful restart; 0: without
	Neighbours []Neighbour
	Log        *slog.Logger
}

// Neighbour is a router to speak to.
type Neighbour struct {
	Address  netip.Addr
	AS       int
	Password string        // of TCP MD5; empty: none
	Multihop int           // TTL of what is sent; 0: what a neighbour on a link needs
	BFD      time.Duration // between two packets; 0: none
}

const (
	// connectRetry is how long after an attempt to connect the next one is made, and
	// idleTime how long after a reset, both in seconds: two is the least that GoBGP
	// has for the first.
	connectRetry, idleTime = 2, 2
	// deferral is how long, in seconds, a speaker that restarts waits for what its
	// neighbours announce: it takes nothing of it, and has nothing to choose.
	deferral = 1
	// bfdLost packets in a row end a session.
	bfdLost = 3
)

// Speaker is a bgp.Speaker.
type Speaker struct {
	options Options
	server  *server.BgpServer
	watch   context.CancelFunc
	changed chan struct{}

	mu     sync.Mutex
	peers  map[netip.Addr]*peer
	routes map[netip.Addr]bgp.Route // what is told
	added  map[netip.Addr]bool      // neighbours that the server has
}

// peer is how a session stands.
type peer struct {
	state       packet.FSMState
	since       time.Time // it is established, or is not
	established bool
	failure     string
}

// Open makes a speaker that has no sessions yet, and listens nowhere.
func Open(o Options) (*Speaker, error) {
	s := &Speaker{options: o, changed: make(chan struct{}, 1), peers: map[netip.Addr]*peer{},
		routes: map[netip.Addr]bgp.Route{}, added: map[netip.Addr]bool{}}
	for _, n := range o.Neighbours {
		s.peers[n.Address] = &peer{since: time.Now()}
	}
	s.server = server.NewBgpServer(server.LoggerOption(slog.New(&listener{s: s, to: o.Log.Handler()}), new(slog.LevelVar)))
	go s.server.Serve()
	ctx := context.Background()
	err := s.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: uint32(o.LocalAS), RouterId: o.RouterID.String(), ListenPort: -1}})
	if err != nil {
		return nil, fmt.Errorf("start BGP: %w", err)
	}
	if err = s.onlyOurs(ctx); err == nil {
		ctx, s.watch = context.WithCancel(ctx)
		err = s.server.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: s.update}, server.WatchPeer())
	}
	if err != nil {
		s.server.Stop()
		return nil, fmt.Errorf("start BGP: %w", err)
	}
	return s, nil
}

// onlyOurs has what neighbours announce neither taken nor passed on: this is no router.
func (s *Speaker) onlyOurs(ctx context.Context) error {
	ours := &api.Policy{Name: "ours", Statements: []*api.Statement{{Name: "ours",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}}}}
	if err := s.server.AddPolicy(ctx, &api.AddPolicyRequest{Policy: ours}); err != nil {
		return err
	}
	for _, direction := range []api.PolicyDirection{api.PolicyDirection_POLICY_DIRECTION_IMPORT, api.PolicyDirection_POLICY_DIRECTION_EXPORT} {
		err := s.server.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
			Name: "global", Direction: direction, Policies: []*api.Policy{{Name: ours.Name}}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT}})
		if err != nil {
			return err
		}
	}
	return nil
}

// Start implements bgp.Speaker.
func (s *Speaker) Start() error {
	for _, n := range s.options.Neighbours {
		s.mu.Lock()
		added := s.added[n.Address]
		s.mu.Unlock()
		if added {
			continue
		}
		if err := s.server.AddPeer(context.Background(), &api.AddPeerRequest{Peer: s.peer(n)}); err != nil {
			return fmt.Errorf("neighbour %s: %w", n.Address, err)
		}
		s.mu.Lock()
		s.added[n.Address] = true
		s.mu.Unlock()
	}
	return nil
}

// peer is a neighbour as GoBGP wants it.
func (s *Speaker) peer(n Neighbour) *api.Peer {
	family := &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}
	if n.Address.Is4() {
		family.Afi = api.Family_AFI_IP
	}
	hold := uint64(s.options.HoldTime / time.Second)
	p := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: n.Address.String(), PeerAsn: uint32(n.AS), AuthPassword: n.Password},
		Timers: &api.Timers{Config: &api.TimersConfig{ConnectRetry: connectRetry, HoldTime: hold,
			KeepaliveInterval: max(hold/3, 1), IdleHoldTimeAfterReset: idleTime}},
		AfiSafis: []*api.AfiSafi{{Config: &api.AfiSafiConfig{Family: family, Enabled: true}}},
	}
	if n.Multihop > 0 {
		p.EbgpMultihop = &api.EbgpMultihop{Enabled: true, MultihopTtl: uint32(n.Multihop)}
	}
	if restart := s.options.Restart; restart > 0 {
		// Packets went on without us, so that the neighbour may go on with what it has.
		p.GracefulRestart = &api.GracefulRestart{Enabled: true, RestartTime: uint32(restart / time.Second), DeferralTime: deferral, LocalRestarting: true}
		p.AfiSafis[0].MpGracefulRestart = &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}}
	}
	if n.BFD > 0 {
		interval := uint32(n.BFD.Microseconds())
		p.Bfd = &api.BfdPeerConfig{Enabled: true, DesiredMinimumTxInterval: interval, RequiredMinimumReceive: interval, DetectionMultiplier: bfdLost}
	}
	return p
}

// Set implements bgp.Speaker.
func (s *Speaker) Set(routes []bgp.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var set, gone []*apiutil.Path
	want := map[netip.Addr]bgp.Route{}
	for _, r := range routes {
		want[r.Address] = r
		if had, ok := s.routes[r.Address]; !ok || had.MED != r.MED || !slices.Equal(had.Communities, r.Communities) {
			p, err := path(r)
			if err != nil {
				return err
			}
			set = append(set, p)
		}
	}
	for a, had := range s.routes {
		if _, ok := want[a]; !ok {
			p, err := path(had)
			if err != nil {
				return err
			}
			gone = append(gone, p)
		}
	}
	// What has to go goes first: somebody's connections wait for that.
	if len(gone) > 0 {
		if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: gone}); err != nil {
			return fmt.Errorf("withdraw routes: %w", err)
		}
	}
	if len(set) > 0 {
		if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: set}); err != nil {
			return fmt.Errorf("announce routes: %w", err)
		}
	}
	s.routes = want
	return nil
}

// path is a route to one address. Its next hop, unspecified, is this end of each
// session.
func path(r bgp.Route) (*apiutil.Path, error) {
	nlri, err := packet.NewIPAddrPrefix(netip.PrefixFrom(r.Address, r.Address.BitLen()))
	if err != nil {
		return nil, fmt.Errorf("announce %s: %w", r.Address, err)
	}
	attributes := []packet.PathAttributeInterface{packet.NewPathAttributeOrigin(packet.BGP_ORIGIN_ATTR_TYPE_IGP)}
	family := packet.RF_IPv4_UC
	if r.Address.Is4() {
		next, err := packet.NewPathAttributeNextHop(netip.IPv4Unspecified())
		if err != nil {
			return nil, fmt.Errorf("announce %s: %w", r.Address, err)
		}
		attributes = append(attributes, next)
	} else {
		family = packet.RF_IPv6_UC
		next, err := packet.NewPathAttributeMpReachNLRI(family, []packet.PathNLRI{{NLRI: nlri}}, netip.IPv6Unspecified())
		if err != nil {
			return nil, fmt.Errorf("announce %s: %w", r.Address, err)
		}
		attributes = append(attributes, next)
	}
	if r.MED > 0 {
		attributes = append(attributes, packet.NewPathAttributeMultiExitDisc(uint32(r.MED)))
	}
	var usual []uint32
	var large []*packet.LargeCommunity
	for _, text := range r.Communities {
		c, ok := vip.ParseCommunity(text)
		switch {
		case !ok: // refused before
		case c.Large:
			large = append(large, &packet.LargeCommunity{ASN: c.Values[0], LocalData1: c.Values[1], LocalData2: c.Values[2]})
		default:
			usual = append(usual, c.Values[0]<<16|c.Values[1])
		}
	}
	if len(usual) > 0 {
		attributes = append(attributes, packet.NewPathAttributeCommunities(usual))
	}
	if len(large) > 0 {
		attributes = append(attributes, packet.NewPathAttributeLargeCommunities(large))
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attributes}, nil
}

// update takes over how a session stands.
func (s *Speaker) update(e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if e == nil || e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := e.Peer.State
	p := s.peers[state.NeighborAddress]
	if p == nil {
		return
	}
	p.state = state.SessionState
	established := p.state == packet.BGP_FSM_ESTABLISHED
	switch state.DisconnectReason {
	case api.PeerState_DISCONNECT_REASON_UNSPECIFIED, api.PeerState_DISCONNECT_REASON_IDLE_TIMER_EXPIRED: // nothing failed
	case api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		// GoBGP does not tell what the router says instead of its OPEN.
		p.failure = "the router refused the session: compare its AS number with neighbours[].as, and bgp.local_as with what it expects; its log has the reason"
	default:
		p.failure = strings.ReplaceAll(state.DisconnectMessage, "-", " ")
	}
	if established != p.established {
		if i := slices.IndexFunc(s.options.Neighbours, func(n Neighbour) bool { return n.Address == state.NeighborAddress }); !established && s.options.Neighbours[i].BFD > 0 && stale(p.failure, time.Since(p.since)) {
			go s.renew(s.options.Neighbours[i]) // GoBGP waits for this to return
		}
		p.established, p.since = established, time.Now()
		if established {
			s.options.Log.Info("BGP session established", "neighbour", state.NeighborAddress.String())
		} else {
			s.options.Log.Warn("BGP session ended", "neighbour", state.NeighborAddress.String(), "why", p.failure)
		}
		select {
		case s.changed <- struct{}{}:
		default: // it is told already
		}
	}
}

// Neighbours implements bgp.Speaker.
func (s *Speaker) Neighbours() (all []bgp.Neighbour) {
	bfd := map[string]string{}
	s.server.ListBfdPeer(context.Background(), func(address string, state *api.BfdPeerState) {
		word := strings.TrimPrefix(state.SessionState.String(), "BFD_SESSION_STATE_")
		bfd[address] = strings.ReplaceAll(strings.ToLower(word), "_", " ")
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.options.Neighbours {
		p := s.peers[n.Address]
		out := bgp.Neighbour{Address: n.Address, AS: n.AS, Established: p.established, Since: p.since, Error: p.failure,
			State: strings.ToLower(strings.TrimPrefix(p.state.String(), "BGP_FSM_"))}
		if n.BFD > 0 {
			if out.BFD = bfd[n.Address.String()]; out.BFD == "" {
				out.BFD = "down"
			}
		}
		all = append(all, out)
	}
	return all
}

// Changed implements bgp.Speaker.
func (s *Speaker) Changed() <-chan struct{} { return s.changed }

// Close implements bgp.Speaker.
func (s *Speaker) Close() error {
	s.watch()
	s.server.Stop()
	return nil
}
