package vip

import (
	"strings"
	"testing"
)

// TestCheck: each rule of what goes together, by the field that it names, what is
// wrong and what to write. A VIP that breaks none has no problem.
func TestCheck(t *testing.T) {
	web := Settings{Protocol: TCP, Scheme: Cheetah, Policy: RR, Affinity: Connection, Forwarding: IPIP, Fragments: Drop, Steer: SteerOff,
		Hash: "table-hrw", CookieBits: 12, WarmUp: DefaultWarmUp}
	for what, c := range map[string]struct {
		change               func(*Settings)
		field, wrong, remedy string
	}{
		"nothing":          {func(*Settings) {}, "", "", ""},
		"unknown protocol": {func(s *Settings) { s.Protocol = "tpc" }, "protocol", "unknown", "tcp, udp"},
		"unknown protocol hides no other choice": {func(s *Settings) { s.Protocol, s.Scheme, s.CookieBits = "tpc", JET, 0 }, "policy",
			"by its hash alone", "write policy: hash"},
		"udp has no cookie":          {func(s *Settings) { s.Protocol = UDP }, "policy", "UDP has no timestamps", "write policy: hash"},
		"a policy with jet":          {func(s *Settings) { s.Scheme = JET }, "policy", "by its hash alone", "write policy: hash"},
		"affinity without hash":      {func(s *Settings) { s.Affinity = Address }, "affinity", "does not look at addresses", "write policy: hash"},
		"cookie too wide":            {func(s *Settings) { s.CookieBits = 30 }, "cookie_bits", "out of range", "write "},
		"joins elsewhere":            {func(s *Settings) { s.MPTCP = true }, "mptcp", "takes no joins", "scheme: beamer"},
		"hash that foresees nothing": {func(s *Settings) { s.Hash = "maglev" }, "hash", "", "write hash: "},
		"unknown carrier":            {func(s *Settings) { s.Carrier = "tcp-timestmp" }, "carrier", "unknown", "tcp-timestamp"},
		"unknown carrier where nothing is carried": {func(s *Settings) { s.Scheme, s.Policy, s.Carrier, s.CookieBits = JET, ByTheHash, "quic", 0 }, "carrier",
			"scheme jet has no cookie there on tcp", "remove it"},
		"carrier where nothing is carried": {func(s *Settings) { s.Scheme, s.Policy, s.Carrier, s.CookieBits = JET, ByTheHash, TCPTimestamp, 0 }, "carrier",
			"scheme jet has no cookie there on tcp", "remove it"},
		"unknown announce":  {func(s *Settings) { s.Announce = "sometimes" }, "announce", "unknown", "healthy, always, never"},
		"no community":      {func(s *Settings) { s.Communities = []string{"no-export", "65536:1"} }, "communities[1]", "not a community", "65001:100"},
		"med":               {func(s *Settings) { s.MED = -1 }, "med", "out of range", "0 to"},
		"offload":           {func(s *Settings) { s.Handshake = HandshakeOffload }, "", "", ""},
		"unknown handshake": {func(s *Settings) { s.Handshake = "ofload" }, "handshake", "unknown", "stack, offload"},
		"offload of udp": {func(s *Settings) {
			s.Handshake, s.Protocol, s.Policy, s.CookieBits = HandshakeOffload, UDP, ByTheHash, 0
		},
			"handshake", "protocol is udp", "protocol: tcp"},
		"offload without cookies": {func(s *Settings) { s.Handshake, s.Scheme, s.Policy, s.CookieBits = HandshakeOffload, JET, ByTheHash, 0 },
			"handshake", "no cookies", "scheme: cheetah"},
		"offload with tiers": {func(s *Settings) { s.Handshake, s.Tiers = HandshakeOffload, &Tiers{4, IPIP} },
			"handshake", "the balancer that a SYN came through", "remove tiers"},
		"tiers without cookies": {func(s *Settings) { s.Scheme, s.Policy, s.CookieBits, s.Tiers = JET, ByTheHash, 0, &Tiers{4, IPIP} }, "tiers",
			"has no cookie that could name a balancer", "scheme: cheetah"},
		"too many balancers":     {func(s *Settings) { s.Tiers = &Tiers{7, IPIP} }, "tiers.bits", "out of range", "write 1 to 6"},
		"no bit left for a slot": {func(s *Settings) { s.CookieBits, s.Tiers = 10, &Tiers{9, IPIP} }, "tiers.bits", "out of range", "write 1 to 6"},
		"unknown way between":    {func(s *Settings) { s.Tiers = &Tiers{4, "gre"} }, "tiers.forwarding", "unknown", strings.Join(ForwardingNames(), ", ")},
		"nobody checks tier two": {func(s *Settings) { s.Tiers = &Tiers{4, IPIP} }, "health", "missing", "write health"},
		"unknown forwarding":     {func(s *Settings) { s.Forwarding = "gre" }, "forwarding", "unknown", strings.Join(ForwardingNames(), ", ")},
	} {
		s := web
		c.change(&s)
		found := s.Check(Size{Servers: 2, Working: 2}, func(field string) bool { return field == c.field })
		ok := c.field == "" && len(found) == 0
		for _, p := range found {
			ok = ok || p.Field == c.field && strings.Contains(p.Wrong, c.wrong) && strings.Contains(p.Remedy, c.remedy)
		}
		if !ok {
			t.Errorf("%s: %+v, want %s: %s; %s", what, found, c.field, c.wrong, c.remedy)
		}
	}
}
