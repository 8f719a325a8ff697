package gobgp

import (
	"context"
	"log/slog"
	"net/netip"
)

// listener is GoBGP's log. It passes on what is a warning, and takes out of the rest
// why a connection could not be made, which is said nowhere else.
type listener struct {
	s         *Speaker
	to        slog.Handler
	neighbour netip.Addr // whose log it is
}

// connectFailed is the message of GoBGP's that has the reason as its Error.
const connectFailed = "failed to connect"

// Enabled implements slog.Handler.
func (l *listener) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (l *listener) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == connectFailed {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "Error" {
				l.s.failedToConnect(l.neighbour, a.Value.String())
			}
			return true
		})
	}
	if r.Level < slog.LevelWarn || !l.to.Enabled(ctx, r.Level) {
		return nil
	}
	return l.to.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *listener) WithAttrs(attributes []slog.Attr) slog.Handler {
	next := *l
	next.to = l.to.WithAttrs(attributes)
	for _, a := range attributes {
		if a.Key == "Key" {
			next.neighbour, _ = netip.ParseAddr(a.Value.String()) // else nobody's
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (l *listener) WithGroup(name string) slog.Handler {
	next := *l
	next.to = l.to.WithGroup(name)
	return &next
}

// failedToConnect remembers why the last connection to a neighbour failed.
func (s *Speaker) failedToConnect(neighbour netip.Addr, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[neighbour]; p != nil {
		p.failure = "connect: " + why
	}
}
