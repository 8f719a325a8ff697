package fabric

import (
	"context"
	"errors"
)

var errWritten = errors.New("fabric: being written (G)")

// Switch keeps the kernel as Apply and Health say. Its methods may be called
// from several goroutines.
type Switch struct{ o Options }

// Open looks for the bridge and opens netlink in the caller's network
// namespace; nothing is changed before Apply.
func Open(o Options) (*Switch, error) { return &Switch{o: o}, nil }

// Apply makes the kernel as d says: forward, or back to how it was with an
// error. The first Apply after Open adopts what is installed: nothing that is
// right changes, and until a first round of Health nothing moves for health.
func (s *Switch) Apply(d Desired) error { return errWritten }

// Health takes one round of polls, by server's name, and repoints buckets
// accordingly. Servers that are missing keep their state.
func (s *Switch) Health(reports map[string]Report) error { return errWritten }

// Run reconciles, every second and when the kernel tells of a change, until
// ctx ends. What is in the kernel stays there.
func (s *Switch) Run(ctx context.Context) error { return errWritten }

// Drain withdraws the announced routes, or announces them again; forwarding
// stays. changes are lines for people.
func (s *Switch) Drain(drained bool) (changes []string, err error) { return nil, errWritten }

// Unlock has a locked switch follow health again.
func (s *Switch) Unlock() (changes []string, err error) { return nil, errWritten }

// Ready says why a router should send nothing here yet; empty: it may.
func (s *Switch) Ready() []string { return nil }

// Status is a copy of the switch's state.
func (s *Switch) Status() Status { return Status{} }

// Remove takes everything of ours out of the kernel but the sysctls.
func (s *Switch) Remove() error { return errWritten }

// Close closes netlink; the kernel keeps forwarding.
func (s *Switch) Close() error { return nil }
