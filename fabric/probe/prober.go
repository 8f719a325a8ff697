package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
)

// Prober probes from one host. Safe for use by several goroutines.
type Prober struct {
	c       Config
	net     *paths.Net
	names   map[netip.Addr]int // nodes by their addresses
	secret  secret
	session uint64
	log     *slog.Logger
	sockets []*socket
	lanes   []*lane
	walkers []*walker
	changes chan struct{}

	mu     sync.Mutex
	round  uint32      // the next to send
	judged uint32      // the next to judge
	silent map[int]int // rounds in a row without any answer, by target
	sent   []time.Time // when rounds were, by round modulo their number
	trains *trainLog
}

// New finds a flow for each path and opens its socket in the calling thread's
// network namespace. It needs no privileges. A path that no flow takes stays
// unknown, with the reason. It fails if that is so of all, for a source that is
// not this host's, and for wrong settings.
func New(c Config) (p *Prober, err error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	p = &Prober{
		c: c, secret: secretOf(c.Fabric.Selector.Key), session: rand.Uint64(),
		log: c.Log, changes: make(chan struct{}, 1), names: namesOf(c.Fabric), silent: map[int]int{},
	}
	defer func() {
		if err != nil {
			p.Close()
			p = nil
		}
	}()
	if p.net, err = paths.New(c.Fabric); err != nil {
		return p, err
	}
	pending := int(c.Timeout/c.Interval) + 4
	p.sent = make([]time.Time, pending)
	var refused error
	probed := 0
	for target, t := range c.Targets {
		for index := range t.Paths {
			l, err := p.newLane(target, index)
			if l.socket == nil {
				refused = errors.Join(refused, err)
			} else {
				probed++
			}
			l.track = track{verdict: Unknown, since: time.Now()}
			l.rounds = make([]sentProbe, pending)
			p.lanes = append(p.lanes, l)
		}
	}
	if probed == 0 && refused != nil {
		return p, firstLine(refused)
	}
	if c.Walk > 0 {
		p.newWalkers()
	}
	return p, nil
}

// firstLine is the first of joined errors: the others say the same of other
// paths.
func firstLine(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return firstLine(joined.Unwrap()[0])
	}
	return err
}

func (c *Config) fill() error {
	c.Port = cmp.Or(c.Port, DefaultPort)
	c.Interval = cmp.Or(c.Interval, DefaultInterval)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	switch {
	case c.Interval < 10*time.Millisecond:
		return fmt.Errorf("interval %v: must be 10ms or more", c.Interval)
	case c.Timeout < time.Millisecond || c.Timeout > 10*time.Second:
		return fmt.Errorf("timeout %v: must be 1ms to 10s", c.Timeout)
	case c.Walk < 0:
		return fmt.Errorf("walk %v: must be 0 (never) or more", c.Walk)
	}
	for _, t := range c.Targets {
		for _, path := range t.Paths {
			if len(path.Hops) == 0 {
				return fmt.Errorf("target %s has a path without links", t.Host)
			}
		}
	}
	return nil
}

// Close closes the sockets of a prober that is not run: Run does so itself.
func (p *Prober) Close() {
	for _, s := range p.sockets {
		s.close()
	}
}

// Changes tells that verdicts have changed since it was last read.
func (p *Prober) Changes() <-chan struct{} { return p.changes }

func (p *Prober) changed() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// Judged is how many probes of each path are judged, since the start.
func (p *Prober) Judged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.judged)
}

// Run probes until ctx ends, and closes the prober.
func (p *Prober) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer p.Close()
	for _, s := range p.sockets {
		wg.Go(func() { s.receive(func(k packet) { p.take(s, k) }) })
	}
	if p.c.Walk > 0 {
		wg.Go(func() { p.walk(ctx) })
	}
	return p.rounds(ctx)
}

// rounds sends a round every interval and judges those that are due.
func (p *Prober) rounds(ctx context.Context) error {
	tick := time.NewTicker(p.c.Interval)
	defer tick.Stop()
	for {
		p.judgeDue(time.Now())
		p.sendRound()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// sendRound sends a probe along every path.
func (p *Prober) sendRound() {
	var b [messageSize]byte
	for i, l := range p.lanes {
		if l.socket == nil {
			continue
		}
		m := message{
			kind: kindProbe, ttl: l.ttl, answerTTL: l.backTTL, session: p.session, path: uint32(i), round: p.round,
			sent: l.flow, answerPort: l.back.SrcPort, answerLabel: l.back.Label,
		}
		p.secret.encode(b[:], &m)
		p.mu.Lock()
		l.rounds[int(p.round)%len(l.rounds)] = sentProbe{round: p.round, at: time.Now()}
		p.mu.Unlock()
		err := l.socket.send(b[:], netip.AddrPortFrom(l.flow.Dst, l.flow.DstPort), l.ttl, l.flow.Label)
		if err != nil {
			p.mu.Lock()
			l.why = "this host does not send: " + plainError(err)
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	p.sent[int(p.round)%len(p.sent)] = time.Now()
	p.round++
	p.mu.Unlock()
}

// plainError is the kernel's word alone, without the socket's addresses.
func plainError(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

// judgeDue judges the rounds whose timeout is over.
func (p *Prober) judgeDue(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for p.judged < p.round && now.Sub(p.sent[int(p.judged)%len(p.sent)]) >= p.c.Timeout {
		best := p.best(p.judged)
		changed = p.silence(best) || changed
		for _, l := range p.lanes {
			if l.socket == nil {
				continue
			}
			if p.c.Relative && (best[l.target] == 0 || l.arrived) {
				l.track.skip()
			} else {
				changed = l.judge(p.judged, best[l.target], now) || changed
			}
			l.arrived = false
		}
		p.judged++
	}
	if changed {
		p.changed()
	}
}

// silence counts the rounds that a target did not answer at all. It says whether
// State.Silent begins or ends.
func (p *Prober) silence(best []time.Duration) (changed bool) {
	for target, rtt := range best {
		was := p.silent[target] >= badInRow
		p.silent[target]++
		if rtt > 0 {
			p.silent[target] = 0
		}
		changed = changed || was != (p.silent[target] >= badInRow)
	}
	return changed
}

// best is the least round trip to each target in a round, 0 where nothing was
// answered.
func (p *Prober) best(round uint32) []time.Duration {
	best := make([]time.Duration, len(p.c.Targets))
	for _, l := range p.lanes {
		if s := l.rounds[int(round)%len(l.rounds)]; s.rtt > 0 && (best[l.target] == 0 || s.rtt < best[l.target]) {
			best[l.target] = s.rtt
		}
	}
	return best
}

func (l *lane) judge(round uint32, best time.Duration, now time.Time) bool {
	s := l.rounds[int(round)%len(l.rounds)]
	return l.track.judge(outcome{answered: s.rtt > 0, rtt: s.rtt, why: l.why}, best, now)
}
