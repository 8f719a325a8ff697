package vip

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Health is a VIP's check, sent through its forwarding to the VIP on each
// server. In an assignment every default is filled in.
type Health struct {
	Type     string        `yaml:"type" json:"type"`         // tcp (default) or http
	Port     uint16        `yaml:"port" json:"port"`         // default: the VIP's
	Path     string        `yaml:"path" json:"path"`         // http: default /
	Host     string        `yaml:"host" json:"host"`         // http: Host header, default the VIP's address
	Interval time.Duration `yaml:"interval" json:"interval"` // 100ms to 1h, default 2s
	Timeout  time.Duration `yaml:"timeout" json:"timeout"`   // at most interval, default 1s
	Rise     int           `yaml:"rise" json:"rise"`         // good answers in a row to be up, default 2
	Fall     int           `yaml:"fall" json:"fall"`         // bad ones in a row to be down, default 3
}

// Defaults and bounds of checks.
const (
	DefaultInterval = 2 * time.Second
	DefaultTimeout  = time.Second
	DefaultRise     = 2
	DefaultFall     = 3

	MinInterval = 100 * time.Millisecond
	MaxInterval = time.Hour
	MaxInARow   = 100 // of rise and fall
)

// Check says what is wrong with a check, but for a port that is missing.
func (h *Health) Check() (found []Problem) {
	problem := func(field string, value any, wrong, remedy string) {
		found = append(found, Problem{Field: field, Value: fmt.Sprint(value), Wrong: wrong, Remedy: remedy})
	}
	types := []string{"tcp", "http"}
	switch {
	case !slices.Contains(types, h.Type):
		found = append(found, Problem{"type", h.Type, "unknown", "write " + strings.Join(types, ", "), types})
	case h.Type == "tcp" && h.Path != "":
		problem("path", h.Path, "a tcp check asks for no path", "write type: http, or remove it")
	case h.Type == "http" && (!strings.HasPrefix(h.Path, "/") || strings.ContainsAny(h.Path, " \r\n\t")):
		problem("path", h.Path, "not a path", "begin it with /")
	}
	switch {
	case h.Type == "tcp" && h.Host != "":
		problem("host", h.Host, "a tcp check names no host", "write type: http, or remove it")
	case h.Type == "http" && strings.ContainsAny(h.Host, " \r\n\t/"):
		problem("host", h.Host, "not a host name", "write what the Host header shall hold")
	}
	if h.Interval < MinInterval || h.Interval > MaxInterval {
		problem("interval", h.Interval, "out of range", "write 100ms to 1h")
	}
	if h.Timeout <= 0 || h.Timeout > h.Interval {
		problem("timeout", h.Timeout, "out of range", "write more than 0 and at most the interval, "+h.Interval.String())
	}
	for _, f := range []struct {
		key string
		v   int
	}{{"rise", h.Rise}, {"fall", h.Fall}} {
		if f.v < 1 || f.v > MaxInARow {
			problem(f.key, f.v, "out of range", "write 1 to 100")
		}
	}
	return found
}
