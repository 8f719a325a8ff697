package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// AnswerConfig says what an answerer answers.
type AnswerConfig struct {
	// Key is the fabric's: topology.Fabric.Selector.Key. Probes of other keys
	// are not answered.
	Key [16]byte
	// Port is the UDP port; 0: DefaultPort.
	Port uint16
	// Log; nil: slog.Default().
	Log *slog.Logger
}

// Answerer sends each authentic probe back, once and no longer than it was,
// with what it saw of it: TTL, addresses, ports, label, and when.
//
// The answer leaves from the source port that the probe asks for, so that it
// takes the probe's path back. Where the probe was rewritten on its way (NAT),
// it leaves from the port that the probe came to instead: only so does it find
// its way back, and tell.
type Answerer struct {
	secret   atomic.Pointer[secret]
	log      *slog.Logger
	sockets  []*socket
	raw      map[bool]*rawSocket // by six
	answered atomic.Uint64
	foreign  atomic.Uint64
	failed   atomic.Uint64
}

// Answers are what an answerer counted since it was opened.
type Answers struct {
	Answered uint64 // probes
	Foreign  uint64 // packets that are no probes of this fabric
	Failed   uint64 // answers that the kernel did not send
}

// NewAnswerer opens the answerer's sockets in the calling thread's network
// namespace, on all addresses of both families. It needs CAP_NET_RAW.
func NewAnswerer(c AnswerConfig) (*Answerer, error) {
	c.Port = cmp.Or(c.Port, DefaultPort)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	a := &Answerer{log: c.Log, raw: map[bool]*rawSocket{}}
	a.SetKey(c.Key)
	for _, at := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		err := a.open(netip.AddrPortFrom(at, c.Port))
		if at.Is6() && (errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL)) {
			continue // a host without IPv6
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("%w; another answerer runs here (fairlead host answers, too), or give both sides another --port", err)
		}
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("answer probes on UDP port %d: %w", c.Port, err)
		}
	}
	return a, nil
}

// SetKey changes AnswerConfig.Key. Safe at any time.
func (a *Answerer) SetKey(key [16]byte) {
	s := secretOf(key)
	a.secret.Store(&s)
}

func (a *Answerer) open(at netip.AddrPort) error {
	s, err := openSocket(at, false)
	if err != nil {
		return err
	}
	a.sockets = append(a.sockets, s)
	raw, err := openRaw(s.six)
	if err == nil {
		a.raw[s.six] = raw
	}
	return err
}

// Close ends Run, if it runs, and closes the sockets.
func (a *Answerer) Close() {
	for _, s := range a.sockets {
		s.close()
	}
	for _, r := range a.raw {
		r.close()
	}
}

// Run answers until ctx ends, and closes the answerer.
func (a *Answerer) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.Close)()
	var wg sync.WaitGroup
	for _, s := range a.sockets {
		wg.Go(func() { s.receive(func(p packet) { a.take(s, p) }) })
	}
	wg.Wait()
	a.Close()
	return ctx.Err()
}

// Answers are the counts.
func (a *Answerer) Answers() Answers {
	return Answers{a.answered.Load(), a.foreign.Load(), a.failed.Load()}
}

// take answers one packet.
func (a *Answerer) take(s *socket, p packet) {
	secret := a.secret.Load()
	m, err := secret.decode(p.data)
	if err != nil || m.kind != kindProbe {
		a.foreign.Add(1)
		return
	}
	m.kind = kindAnswer
	m.seenTTL = p.ttl
	m.seen = pathsel.Flow{
		Src: p.from.Addr().Unmap(), Dst: p.to, Proto: protoUDP,
		SrcPort: p.from.Port(), DstPort: s.port(), Label: p.label,
	}
	if m.sent.Label == 0 {
		m.seen.Label = 0 // the prober's kernel chose one: it means nothing
	}
	flow := pathsel.Flow{Src: p.to, Dst: m.seen.Src, Proto: protoUDP, SrcPort: m.answerPort, DstPort: m.seen.SrcPort, Label: m.answerLabel}
	if m.answerPort == 0 || m.seen != m.sent {
		flow.SrcPort, flow.Label = s.port(), 0
	}
	m.received = p.at.UnixNano()
	m.held = max(0, int64(time.Since(p.at)))
	secret.encode(p.data, &m)
	if err := a.raw[s.six].send(p.data, flow, m.answerTTL); err != nil {
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if a.failed.Add(1) == 1 {
			a.log.Warn("an answer to a probe was not sent", "to", p.from, "error", err)
		}
		return
	}
	a.answered.Add(1)
}
