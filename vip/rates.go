package vip

import (
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/scheme/rates"
)

// Rates are limits of what a balancer takes a second, each at once as much as in a
// second. Every balancer counts by itself.
type Rates struct {
	// Connection is of each connection (scheme cheetah-stateful); nil: no limit.
	Connection *ConnectionRate `yaml:"connection" json:"connection,omitempty"`
	// Source is of each prefix of clients; nil: no limit.
	Source *SourceRate `yaml:"source" json:"source,omitempty"`
}

// ConnectionRate is of one connection.
type ConnectionRate struct {
	Packets int `yaml:"packets" json:"packets"` // a second, 1 to 10^8
}

// SourceRate is of one prefix of clients.
type SourceRate struct {
	PrefixV4    int `yaml:"prefix_v4" json:"prefix_v4"`               // bits, 1 to 32, default 24
	PrefixV6    int `yaml:"prefix_v6" json:"prefix_v6"`               // 1 to 128, default 56
	Packets     int `yaml:"packets" json:"packets,omitempty"`         // a second, 1 to 10^8; 0: no limit
	Connections int `yaml:"connections" json:"connections,omitempty"` // new ones
}

// String is what people read; "none" where there are no limits.
func (r *Rates) String() string {
	if r == nil {
		return "none"
	}
	var words []string
	if c := r.Connection; c != nil {
		words = append(words, fmt.Sprintf("%d packets a connection", c.Packets))
	}
	if s := r.Source; s != nil {
		of := fmt.Sprintf("a source (/%d, /%d)", s.PrefixV4, s.PrefixV6)
		if s.Packets > 0 {
			words = append(words, fmt.Sprintf("%d packets %s", s.Packets, of))
		}
		if s.Connections > 0 {
			words = append(words, fmt.Sprintf("%d new connections %s", s.Connections, of))
		}
	}
	return strings.Join(words, ", ")
}

// Clone is a copy that shares nothing.
func (r *Rates) Clone() *Rates {
	c := *r
	if r.Connection != nil {
		c.Connection = new(*r.Connection)
	}
	if r.Source != nil {
		c.Source = new(*r.Source)
	}
	return &c
}

// DefaultPrefixV4 and DefaultPrefixV6 are of SourceRate, where the file says none.
const (
	DefaultPrefixV4 = 24
	DefaultPrefixV6 = 56
)

// rates looks at the limits.
func (c *check) rates() {
	s := c.s
	if s.Rates == nil || !c.known("scheme", "protocol") {
		return
	}
	const none = "; remove it for no limit"
	if c.r.Switched {
		c.problem("rates", s.Scheme, fmt.Sprintf("scheme %s has no balancer that could count", s.Scheme), "remove it, or write another scheme")
		return
	}
	limit := func(field string, n int, given bool) {
		switch {
		case n == 0 && given:
			c.problem(field, n, "lets nothing through", fmt.Sprintf("write 1 to %d packets or connections a second", rates.Most)+none)
		case n < 0 || n > rates.Most:
			c.problem(field, n, "out of range", fmt.Sprintf("write 1 to %d a second", rates.Most)+none)
		}
	}
	prefix := func(field string, n, most int) {
		if n < 1 || n > most {
			c.problem(field, n, "out of range", fmt.Sprintf("write 1 to %d: how many bits of clients' addresses share a limit", most))
		}
	}
	if r := s.Rates.Connection; r != nil {
		limit("rates.connection.packets", r.Packets, true)
		if c.r.Seats == 0 || !s.Cookies() {
			c.problem("rates.connection", s.Scheme, fmt.Sprintf("scheme %s on %s keeps no count of each connection", s.Scheme, s.Protocol),
				"remove it, or write scheme: cheetah-stateful on tcp; rates.source is for every scheme")
		}
	}
	if r := s.Rates.Source; r != nil {
		prefix("rates.source.prefix_v4", r.PrefixV4, 32)
		prefix("rates.source.prefix_v6", r.PrefixV6, 128)
		limit("rates.source.packets", r.Packets, c.given("rates.source.packets"))
		limit("rates.source.connections", r.Connections, c.given("rates.source.connections"))
		if r.Packets == 0 && r.Connections == 0 && !c.given("rates.source.packets") && !c.given("rates.source.connections") {
			c.problem("rates.source", "", "limits nothing", "write packets, connections or both")
		}
	}
	if c.file && s.Rates.Connection == nil && s.Rates.Source == nil {
		c.problem("rates", "", "limits nothing", "write connection, source or both, or remove it")
	}
}
