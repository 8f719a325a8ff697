package vip

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/wire"
)

// Settings are those of one VIP, as the file says them and every assignment
// carries them.
type Settings struct {
	// Name is what verbs call it (default address:port/protocol).
	Name     string     `yaml:"name" json:"name"`
	Address  netip.Addr `yaml:"address" json:"address"`
	Port     uint16     `json:"port"`                     // 0: all
	Protocol string     `yaml:"protocol" json:"protocol"` // tcp (default) or udp
	Scheme   Scheme     `yaml:"scheme" json:"scheme"`     // cheetah (default; on udp the same as jet), cheetah-stateful, jet, full-ct, stateless, beamer, faild
	// Policy is rr (default), wrr, p2c, least-conn or hash; schemes without
	// cookies and protocol udp allow (and default to) hash alone.
	Policy Policy `yaml:"policy" json:"policy"`
	// Affinity of policy hash: connection (default) or address: all
	// connections of a client address go to one server.
	Affinity   string     `yaml:"affinity" json:"affinity"`
	Forwarding Forwarding `yaml:"forwarding" json:"forwarding"` // ipip (default), gue, l2
	// Steer chooses the path of forwarding gue's tunnels through the fabric: off
	// (default; "" in an assignment), server (a path for each server) or
	// connection (each server's connections over all of its good paths).
	Steer string `yaml:"steer" json:"steer,omitempty"`
	// CookieBits is the cookie's width, 10 to 15 (default 12: 2,048 slots,
	// 17 minutes idle).
	CookieBits int `yaml:"cookie_bits" json:"cookie_bits"`
	// SeatBits of scheme cheetah-stateful is how many of them name the seat where a
	// balancer keeps what it knows of the connection, 3 to 10 (default 8; and
	// cookie_bits: 15). The rest name slots. Else 0.
	SeatBits int `yaml:"seat_bits" json:"seat_bits,omitempty"`
	// Tiers: balancers of a second tier stand before the servers, and cookies name them,
	// too; nil: there is one tier.
	Tiers *Tiers `yaml:"tiers" json:"tiers,omitempty"`
	// Rates are limits of what the VIP takes; nil: there are none.
	Rates *Rates `yaml:"rates" json:"rates,omitempty"`
	// Carrier is where the cookie travels; "": where the scheme's does over the
	// protocol (tcp-timestamp), which the file may say too.
	Carrier Carrier `yaml:"carrier" json:"carrier,omitempty"`
	// Handshake is who answers SYNs: stack (default, which is "") or offload: the
	// agent's programs, for protocols whose client speaks first.
	Handshake string  `yaml:"handshake" json:"handshake,omitempty"`
	Fragments string  `yaml:"fragments" json:"fragments"` // drop (default) or addresses
	ICMPEcho  bool    `json:"icmp_echo"`                  // default true
	MSSClamp  bool    `json:"mss_clamp"`                  // default true
	Health    *Health `yaml:"health" json:"health,omitempty"`
	// Hash is the consistent hash: of policy hash, and of what carries no
	// cookie. Default table-hrw, as is "" in an assignment made before there was
	// a choice.
	Hash Hash `yaml:"hash" json:"hash,omitempty"`
	// Capacity, of hash anchor and dx: how many servers the VIP can ever
	// number, fixed for its life. Default: servers and a quarter more, at
	// least 16 more. Else 0.
	Capacity int `yaml:"capacity" json:"capacity,omitempty"`
	// Horizon, of hash anchor: how many numbers above the highest slot are in
	// the horizon, so that as many servers may be added at once without a
	// warm-up. Default: a tenth of the servers, at least 1. Else 0.
	Horizon int `json:"horizon,omitempty"`
	// WarmUp is how long connections opened before a change that was not in
	// the horizon are held where they are, 100ms to how long the flow table
	// keeps an idle entry, which is the default: 2h4m for TCP and 2m for UDP.
	// 0 in an assignment: not at all.
	WarmUp time.Duration `yaml:"warm_up" json:"warm_up,omitempty"`
	// Share tells tracked connections to the other balancers. Default true,
	// false for scheme full-ct, which tracks all.
	Share bool `json:"share,omitempty"`
	// ChainTime of schemes beamer and faild is how long after a bucket's move
	// its previous servers are asked, 1s to 24h, default 4m. Else 0.
	ChainTime time.Duration `yaml:"chain_time" json:"chain_time,omitempty"`
	// MPTCP of scheme beamer takes joins of Multipath TCP to the server of the
	// first subflow. One VIP an address, on TCP.
	MPTCP bool `yaml:"mptcp" json:"mptcp,omitempty"`
	// Announce says when the address is announced by BGP: healthy (default; "" in an
	// assignment), always or never. Communities and MED are those of its route beside
	// the file's for all; MED 0: that one.
	Announce    string   `yaml:"announce" json:"announce,omitempty"`
	Communities []string `yaml:"communities" json:"communities,omitempty"`
	MED         int      `yaml:"med" json:"med,omitempty"`
}

// Problem is what is wrong with a setting. Field is its key in the file.
type Problem struct {
	Field, Value, Wrong, Remedy string
	// Words are all that the field may say, where it says none of them.
	Words []string
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s: %s: %s; %s", p.Field, p.Value, p.Wrong, p.Remedy)
}

// Proto is the protocol's number in an IP header.
func (s *Settings) Proto() uint8 {
	if s.Protocol == UDP {
		return wire.ProtoUDP
	}
	return wire.ProtoTCP
}

// Cookies says whether connections carry cookies: scheme cheetah on TCP. What
// carries none goes as in scheme jet.
func (s *Settings) Cookies() bool { return s.Carries().Name != "" }

// Carries is the row of what carries the cookies, a zero one where nothing does.
func (s *Settings) Carries() CarrierRow {
	r := s.Scheme.Row()
	if s.Carrier == "" {
		return r.Carrier(s.Protocol).Row()
	}
	row := s.Carrier.Row()
	if !slices.Contains(r.Carriers, s.Carrier) || !slices.Contains(row.Protocols, s.Protocol) {
		return CarrierRow{}
	}
	return row
}

// Goes is the scheme that connections go by: cheetah's without a cookie as in
// scheme jet.
func (s *Settings) Goes() Scheme {
	if s.Scheme.Row().Finds == ByCookie && !s.Cookies() {
		return JET
	}
	return s.Scheme
}

// Width is the carrier that bounds cookie_bits, by which rests and rows of hash
// tables go where nothing carries a cookie, too.
func (s *Settings) Width() CarrierRow {
	if s.Cookies() {
		return s.Carries()
	}
	return carriers[0]
}

// Layout is that of the VIP's cookies.
func (s *Settings) Layout() cheetah.Layout {
	return cheetah.Layout{Bits: s.CookieBits, SeatBits: s.SeatBits, TierBits: s.TierBits()}
}

// DefaultBits is the width of cookies where the file says none: with a seat in it, all
// that there is.
func (s *Settings) DefaultBits() int {
	if s.SeatBits == 0 {
		return s.Width().DefaultBits
	}
	return s.Width().MaxBits
}

// DefaultSeatBits is seat_bits where the file says none.
func (s *Settings) DefaultSeatBits() int {
	if !s.Cookies() {
		return 0
	}
	return s.Scheme.Row().Seats
}

// Chains says whether packets may be passed on from server to server: schemes
// that go by buckets.
func (s *Settings) Chains() bool { return s.Scheme.Row().Chains() }

// Steers says whether tunnels take paths that are chosen.
func (s *Settings) Steers() bool { return s.Steer == SteerServer || s.Steer == SteerConnection }

// Handshakes is who answers SYNs, in words.
func (s *Settings) Handshakes() string { return cmp.Or(s.Handshake, HandshakeStack) }

// Offloads says whether agents answer SYNs.
func (s *Settings) Offloads() bool { return s.Handshake == HandshakeOffload }

// Tunnels says whether balancers put headers before packets.
func (s *Settings) Tunnels() bool { return !s.Scheme.Row().Switched && s.Forwarding.Row().Tunnel }

// Tracks: connections may be found by a flow table alone.
func (s *Settings) Tracks() bool {
	r := s.Scheme.Row()
	return r.Finds == ByHash && r.Tracks != None
}

// Weighted: servers may have different weights.
func (s *Settings) Weighted() bool { return s.Chains() || s.Hash.Weighted() }

// MaxNumbers is how many numbers there could be for servers: what the cookie
// can name, or what the data plane can.
func (s *Settings) MaxNumbers() int {
	r, carrier := s.Scheme.Row(), s.Carries()
	switch {
	case carrier.holds(s.CookieBits):
		return max(carrier.Slots(s.CookieBits)>>s.SeatBits>>s.TierBits(), 1)
	case r.Hops && s.MPTCP:
		return joinSlots
	}
	return cmp.Or(r.Slots, chash.MaxSlots)
}

// Rest is how long a removed server's number is not used again: until no
// connection that may still speak carries a cookie that decodes to it, has an
// entry in a flow table that names it, or is passed on to it.
func (s *Settings) Rest() time.Duration {
	switch {
	case s.Chains():
		return s.ChainTime
	case s.Tracks():
		return MaxWarmUp(s.Protocol)
	}
	return s.Width().Idle(s.CookieBits)
}

// Size is of what there are many.
type Size struct {
	Buckets int // of its table
	// Servers of the pool in the file, and those of them that take new
	// connections. An assignment's slots are bounded by MaxNumbers and Capacity.
	Servers, Working int
}

// Check says what is wrong with the settings of a VIP of that size, and is all
// that does. given tells which fields somebody wrote in the file: those that are
// of no use must not be; nil for an assignment.
func (s *Settings) Check(size Size, given func(field string) bool) []Problem {
	c := check{s: s, r: s.Scheme.Row(), size: size, file: given != nil, given: given}
	if given == nil {
		c.given = func(string) bool { return false }
	}
	c.words()
	c.choices()
	c.handshake()
	c.steer()
	c.rates()
	c.numbers()
	c.announce()
	if c.r.Chains() {
		c.chains()
	} else {
		c.hash()
		c.noChains()
	}
	return c.found
}

// check is Check at work.
type check struct {
	s       *Settings
	r       SchemeRow // zero where there is no such scheme
	size    Size
	file    bool
	given   func(field string) bool
	found   []Problem
	unknown map[string]bool
}

func (c *check) problem(field string, value any, wrong, remedy string) {
	c.found = append(c.found, Problem{Field: field, Value: fmt.Sprint(value), Wrong: wrong, Remedy: remedy})
}

// words looks at the fields that say one of a few words.
func (c *check) words() {
	s := c.s
	steer, hash := s.Steer, s.Hash
	if !c.file {
		steer, hash = cmp.Or(steer, SteerOff), cmp.Or(hash, DefaultHash)
	}
	c.unknown = map[string]bool{}
	for _, f := range []struct {
		field, value string
		words        []string
	}{
		{"protocol", s.Protocol, []string{TCP, UDP}},
		{"scheme", string(s.Scheme), SchemeNames()},
		{"policy", string(s.Policy), PolicyNames()},
		{"affinity", s.Affinity, []string{Connection, Address}},
		{"forwarding", string(s.Forwarding), ForwardingNames()},
		{"fragments", s.Fragments, []string{Drop, Addresses}},
		{"steer", steer, []string{SteerOff, SteerServer, SteerConnection}},
		{"announce", s.Announces(), []string{AnnounceHealthy, AnnounceAlways, AnnounceNever}},
		{"handshake", s.Handshakes(), []string{HandshakeStack, HandshakeOffload}},
		{"hash", string(hash), HashNames()},
		{"carrier", string(cmp.Or(s.Carrier, carriers[0].Name)), CarrierNames()},
	} {
		if f.field == "carrier" && c.r.Name != "" && len(c.r.Carriers) == 0 {
			continue // choices says that it has none
		}
		if f.field == "hash" && c.r.Chains() || slices.Contains(f.words, f.value) {
			continue // chains says that buckets have no hash
		}
		c.unknown[f.field] = true
		wrong := "unknown"
		if !c.file {
			wrong = "unknown to this version"
		}
		c.found = append(c.found, Problem{f.field, f.value, wrong, "write " + strings.Join(f.words, ", "), f.words})
	}
}

// known: all these say words that there are.
func (c *check) known(fields ...string) bool {
	return !slices.ContainsFunc(fields, func(f string) bool { return c.unknown[f] })
}

// choices looks at what does not go together.
func (c *check) choices() {
	s, scheme := c.s, "scheme "+string(c.s.Scheme)
	noCookie := len(c.r.Carriers) > 0 && !s.Cookies()
	switch {
	case !c.known("policy"):
	case s.Protocol == UDP && !s.Cookies() && !s.Policy.Row().Hashes:
		c.problem("policy", s.Policy, "UDP has no timestamps that could carry a cookie, so only hash finds the same server again", "write policy: hash")
	case c.known("scheme") && !slices.Contains(s.Scheme.Policies(s.Protocol), s.Policy):
		c.problem("policy", s.Policy, c.r.WhyHash, "write policy: hash, or scheme: cheetah")
	}
	if c.known("affinity", "policy") && s.Affinity == Address && !s.Policy.Row().Hashes {
		c.problem("affinity", s.Affinity, "policy "+string(s.Policy)+" does not look at addresses", "write policy: hash, or remove affinity")
	}
	carrier := s.Carries()
	if s.Carrier != "" && carrier.Name == "" && c.known("carrier", "scheme", "protocol") {
		c.problem("carrier", s.Carrier, scheme+" has no cookie there on "+s.Protocol, "remove it")
	}
	if !c.file { // without a cookie, too, the width says how many rows an old hash has
		carrier = s.Width()
	}
	switch {
	case carrier.Name == "" && !c.given("cookie_bits"):
	case carrier.Name == "" && c.known("protocol") && s.Protocol == UDP:
		c.problem("cookie_bits", s.CookieBits, "UDP carries no cookie", "remove it")
	case carrier.Name == "" && c.known("scheme") && !noCookie:
		c.problem("cookie_bits", s.CookieBits, scheme+" has no cookie", "remove it, or write scheme: cheetah")
	case carrier.Name != "" && !carrier.holds(s.CookieBits):
		c.problem("cookie_bits", s.CookieBits, "out of range",
			fmt.Sprintf("write %d to %d: wider names more servers, narrower lets connections idle longer", carrier.MinBits, carrier.MaxBits))
	}
	c.seats()
	c.tiers()
}

// seats looks at what of a cookie names no slot.
func (c *check) seats() {
	s, most := c.s, min(MaxSeatBits, c.s.CookieBits-2)
	switch {
	case c.r.Seats == 0 || !s.Cookies():
		if c.known("scheme", "protocol") && (s.SeatBits != 0 || c.given("seat_bits")) {
			c.problem("seat_bits", s.SeatBits, fmt.Sprintf("scheme %s has no seats on %s", s.Scheme, s.Protocol), "remove it, or write scheme: cheetah-stateful on tcp")
		}
	case s.SeatBits < MinSeatBits || s.SeatBits > most:
		c.problem("seat_bits", s.SeatBits, "out of range",
			fmt.Sprintf("write %d to %d: wider fills partitions more evenly, narrower names more servers", MinSeatBits, most))
	}
}

// handshake: an agent answers with the cookie that the connection will have.
func (c *check) handshake() {
	s := c.s
	switch {
	case !s.Offloads():
	case c.known("protocol") && s.Protocol != TCP:
		c.problem("handshake", s.Handshake, "the VIP's protocol is "+s.Protocol+", which has no handshake", "remove it, or write protocol: tcp")
	case c.known("scheme") && !c.r.Offloads:
		c.problem("handshake", s.Handshake, "scheme "+string(s.Scheme)+"'s servers send no cookies that an answer could have from the start: the stack answers as well",
			"remove it, or write scheme: "+schemeThat(func(r *SchemeRow) bool { return r.Offloads }))
	case s.Tiers != nil:
		c.problem("handshake", s.Handshake, "with tiers a cookie names the balancer that a SYN came through, which an answer without state forgets",
			"remove it, or remove tiers")
	}
}

// steer: an assignment may say it of any, and where there is no path to choose it
// does nothing.
func (c *check) steer() {
	s := c.s
	row := s.Forwarding.Row()
	switch {
	case !c.file || !s.Steers():
	case c.r.Switched:
		c.problem("steer", s.Steer, "scheme "+string(s.Scheme)+" has no balancer that makes tunnels: a switch forwards", "remove it")
	case row.NoSteer != "":
		c.problem("steer", s.Steer, row.NoSteer, row.Instead)
	}
}

// chains looks at what is about buckets.
func (c *check) chains() {
	s, scheme := c.s, "scheme "+string(c.s.Scheme)
	switch n, most := c.size.Buckets, c.r.MaxBuckets; {
	case n < 1 || n > most:
		c.problem("buckets", n, "out of range", fmt.Sprintf("write 1 to %d, for good shares a hundred times the servers that there may be", most))
	case n < c.size.Working:
		c.problem("buckets", n, fmt.Sprintf("the VIP has %d servers that work: some would get no bucket", c.size.Working),
			fmt.Sprintf("write %d or more: it is fixed for the VIP's life", min(most, 100*c.size.Working)))
	}
	if s.ChainTime < MinChainTime || s.ChainTime > MaxChainTime {
		c.problem("chain_time", s.ChainTime, "out of range", fmt.Sprintf("write %s to %s: longer than a client waits before it sends again", MinChainTime, MaxChainTime))
	}
	c.joins()
	if c.r.Hops && c.known("forwarding") && !s.Forwarding.Row().Tunnel {
		c.problem("forwarding", s.Forwarding, scheme+"'s packets name the servers to ask next, and forwarding "+string(s.Forwarding)+" has no header that could carry them", "write forwarding: "+strings.Join(TunnelNames(), " or "))
	}
	if c.r.Switched {
		c.switched()
	}
	for _, f := range []struct {
		field string
		value any
		set   bool
	}{
		{"hash", s.Hash, s.Hash != ""},
		{"capacity", s.Capacity, s.Capacity != 0},
		{"horizon", s.Horizon, s.Horizon != 0},
		{"warm_up", s.WarmUp, s.WarmUp != 0},
		{"share", s.Share, s.Share},
	} {
		if f.set || c.given(f.field) {
			c.problem(f.field, f.value, scheme+" goes by its buckets, tracks no connection and holds none", "remove it, or write scheme: jet")
		}
	}
}

// switched refuses what only a balancer does.
func (c *check) switched() {
	s, scheme := c.s, "scheme "+string(c.s.Scheme)
	if c.given("forwarding") {
		c.problem("forwarding", s.Forwarding, scheme+" has no balancer that forwards: a switch does", "remove it")
	}
	if s.Affinity == Address {
		c.problem("affinity", s.Affinity, "a switch hashes the ports of every VIP, too", "remove it, or write scheme: beamer")
	}
	if !s.MSSClamp && c.given("mss_clamp") {
		c.problem("mss_clamp", "false", scheme+" puts no header before a packet, so there is nothing to clamp", "remove it")
	}
}

// noChains refuses what only buckets have.
func (c *check) noChains() {
	s := c.s
	if !c.known("scheme") {
		return
	}
	for _, f := range []struct {
		field string
		value any
		set   bool
	}{{"buckets", c.size.Buckets, c.size.Buckets != 0}, {"chain_time", s.ChainTime, s.ChainTime != 0}} {
		if f.set || c.given(f.field) {
			c.problem(f.field, f.value, "scheme "+string(s.Scheme)+" has no buckets that move from server to server", "remove it, or write scheme: beamer")
		}
	}
	c.joins()
}

// joins looks at mptcp. What stands in the way of an assignment of port 0 is
// the same as of a file's: it means all ports.
func (c *check) joins() {
	s := c.s
	switch {
	case !s.MPTCP:
	case !c.r.Hops:
		c.problem("mptcp", "true", "scheme "+string(s.Scheme)+" takes no joins to the first subflow's server", "remove it, or write scheme: beamer")
	case s.Protocol != TCP:
		c.problem("mptcp", "true", "the VIP's protocol is "+s.Protocol, "remove it, or write protocol: tcp")
	case s.Port == 0 && c.file && !c.given("port"): // that is said of the port
	case s.Port == 0 || s.Port >= FirstJoinPort:
		port := "all"
		if s.Port != 0 {
			port = fmt.Sprint(s.Port)
		}
		c.problem("mptcp", "true", fmt.Sprintf("joins arrive at ports %d to 65535 of the address, and the VIP's own is %s", FirstJoinPort, port), fmt.Sprintf("write a port below %d", FirstJoinPort))
	}
}

// hash refuses hashes that the scheme cannot work with, and settings that the
// scheme or the hash has no use for.
func (c *check) hash() {
	s, kind := c.s, cmp.Or(c.s.Hash, DefaultHash)
	hash := "hash " + string(kind)
	if c.known("hash") && c.r.Foresees() && !kind.Minimal() {
		who := "scheme " + string(s.Scheme)
		if c.r.Finds == ByCookie {
			who = "what carries no cookie goes as in scheme jet, which"
		}
		c.problem("hash", kind, who+" tracks what a change will move, and with "+string(kind)+" a change also moves connections between servers that stay",
			"write hash: table-hrw or anchor, or scheme: full-ct")
	}
	unused := func(field string, value any) {
		if c.r.Unused != "" {
			c.problem(field, value, c.r.Unused, "remove it, or write scheme: jet")
		}
	}
	switch h := s.Horizon; {
	case h == 0 && !c.given("horizon"):
	case h < 0 || h > chash.MaxSlots:
		c.problem("horizon", h, "out of range", fmt.Sprintf("write how many servers may be added at once, 0 to %d", chash.MaxSlots))
	case c.known("hash") && !kind.SpareNumbers() && h > 0:
		c.problem("horizon", h, hash+" needs the names of the servers that may come", "list them with standby: true, or write hash: anchor")
	case c.given("horizon") && h > 0:
		unused("horizon", h)
	}
	switch longest := MaxWarmUp(s.Protocol); {
	case s.WarmUp < MinWarmUp && (c.file || s.WarmUp < 0):
		c.problem("warm_up", s.WarmUp, "out of range", fmt.Sprintf("write %s to %s: longer than connections are silent", MinWarmUp, longest))
	case s.WarmUp > longest:
		c.problem("warm_up", s.WarmUp, fmt.Sprintf("the flow table forgets a connection of %s that is silent for %s, so nothing is held for longer", s.Protocol, longest),
			fmt.Sprintf("write %s to %s, or remove it: the default is %s", MinWarmUp, longest, longest))
	case c.given("warm_up"):
		unused("warm_up", s.WarmUp)
	}
	if s.Share && c.r.Tracks == None {
		unused("share", "true")
	}
}

// numbers: every server has a number of its own, of which the cookie, or the
// hash's capacity, allows so many.
func (c *check) numbers() {
	s, n, limit := c.s, c.size.Servers, c.s.MaxNumbers()
	if n <= limit {
		if !c.r.Chains() { // else chains says that there is none
			c.capacity()
		}
		return
	}
	wrong, remedy := fmt.Sprintf("%d servers: a VIP numbers at most %d", n, limit), "split the pool over two VIPs"
	if carrier := s.Carries(); carrier.Name != "" {
		wrong = fmt.Sprintf("%d servers, but a cookie of %d bits names %d slots", n, s.CookieBits, limit)
		if s.SeatBits > 0 {
			wrong = fmt.Sprintf("%d servers, but a cookie of %d bits, %d of which are a seat's, names %d slots", n, s.CookieBits, s.SeatBits, limit)
			remedy = seatRemedy(s, n, remedy)
		}
		for bits := s.CookieBits + 1; carrier.holds(bits); bits++ {
			if carrier.Slots(bits)>>s.SeatBits>>s.TierBits() >= n {
				remedy = fmt.Sprintf("write cookie_bits: %d", bits)
				break
			}
		}
	}
	c.problem("servers", "", wrong, remedy)
}

// seatRemedy is how n servers have slots beside a seat, else what is said otherwise.
func seatRemedy(s *Settings, n int, otherwise string) string {
	for bits := s.SeatBits - 1; bits >= MinSeatBits; bits-- {
		if s.Carries().Slots(s.CookieBits)>>bits>>s.TierBits() >= n {
			return fmt.Sprintf("write seat_bits: %d", bits)
		}
	}
	return otherwise
}

// capacity: the servers, and those that may be added at once, need numbers.
func (c *check) capacity() {
	s, n, limit, horizon := c.s, c.size.Servers, c.s.MaxNumbers(), c.s.Horizon
	if horizon < 0 || horizon > chash.MaxSlots {
		horizon = 0 // said by hash
	}
	kind := cmp.Or(s.Hash, DefaultHash)
	enough := min(chash.DefaultCapacity(n, horizon), limit)
	written := !c.file || c.given("capacity") || s.Capacity != 0
	switch {
	case !kind.Buckets() && s.Capacity == 0 && !c.given("capacity"):
	case !kind.Buckets():
		c.problem("capacity", s.Capacity, "hash "+string(kind)+" has no capacity: its rows take any number of servers", "remove it, or write hash: anchor")
	case written && (s.Capacity < 1 || s.Capacity > limit):
		why := "write %d to %d"
		if carrier := s.Carries(); limit < chash.MaxSlots && carrier.Name != "" {
			why = "write %d to %d, what the cookie can name, or cookie_bits: " + fmt.Sprint(min(s.CookieBits+1, carrier.MaxBits))
		}
		c.problem("capacity", s.Capacity, "out of range", fmt.Sprintf(why, min(n+horizon, limit), limit))
	case written && s.Capacity < n:
		c.problem("capacity", s.Capacity, fmt.Sprintf("the VIP has %d servers", n),
			fmt.Sprintf("write %d: it is fixed for the VIP's life, and numbers of removed servers rest before they are free again", enough))
	case written && s.Capacity < n+horizon && c.given("horizon"):
		remedy := fmt.Sprintf("write horizon: %d", s.Capacity-n)
		if enough >= n+horizon {
			remedy = fmt.Sprintf("write %d, or horizon: %d", enough, s.Capacity-n)
		}
		c.problem("capacity", s.Capacity, fmt.Sprintf("%d servers and a horizon of %d need more", n, horizon), remedy)
	case n+horizon > limit && c.given("horizon"):
		c.problem("horizon", horizon, fmt.Sprintf("the VIP's servers take %d of the %d numbers that there can be", n, limit), fmt.Sprintf("write horizon: %d", limit-n))
	}
}
