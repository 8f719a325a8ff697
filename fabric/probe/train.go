package probe

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// A train is many full packets back to back. What it loses in speed, it lost
// at the slowest link of the path: the far end's clock says how far apart its
// packets arrived there, ours how far apart the answers did, so that both ways
// are known. Small probes alone pass a slow link as quickly as any, as long as
// nothing else fills it.
//
// tail.go finds which link it is.

// trainBit marks rounds of trains; below it stand the train's number and the
// packet's.
const (
	trainBit      = 1 << 31
	trainLength   = 64   // packets
	trainSize     = 1250 // octets of payload: with all headers less than any usual MTU
	trainAttempts = 3    // the best counts: a machine that is busy holds a train up
)

// Measurable bounds rates, in bit/s: those above it say more about the machines
// at both ends than about links; they count as Measurable.
const Measurable = 400e6

// A path's rate is slow if the best path's is slowRate times as much.
const slowRate = 3

// Rates of a path, in bit/s, both ways; 0: not measured.
type Rates struct{ There, Back float64 }

// trainLog collects what comes back of a train.
type trainLog struct {
	number      uint32
	there, back [trainLength]int64 // nanoseconds, of two clocks; 0: none
	got         int
	began       time.Time
	through     time.Duration // until the last one was back
}

func (g *trainLog) take(m message, at time.Time) {
	if g == nil || m.round>>8&0xffff != g.number&0xffff || m.round&0xff >= trainLength {
		return
	}
	i := m.round & 0xff
	if g.there[i] == 0 {
		g.got++
	}
	g.there[i], g.back[i] = m.received, at.UnixNano()
	g.through = max(g.through, at.Sub(g.began))
}

// Measure sends trains over every path, one after the other, and keeps the
// rates for Report. It must run while Run does; it ends early with ctx.
func (p *Prober) Measure(ctx context.Context) error {
	number := uint32(0)
	for i, l := range p.lanes {
		if l.socket == nil {
			continue
		}
		for range trainAttempts {
			number++
			rates, _, err := p.train(ctx, i, number, nil)
			if err != nil {
				return err
			}
			p.mu.Lock()
			l.rates.There, l.rates.Back = max(l.rates.There, rates.There), max(l.rates.Back, rates.Back)
			p.mu.Unlock()
			if min(rates.There, rates.Back) >= Measurable {
				break
			}
		}
	}
	for _, i := range p.slowLanes() {
		if err := p.tail(ctx, i, &number); err != nil {
			return err
		}
	}
	return nil
}

// train sends one train over a lane, and walks behind it. through is how long
// it was on its way, there and back.
func (p *Prober) train(ctx context.Context, lane int, number uint32, behind []*walker) (rates Rates, through time.Duration, err error) {
	l := p.lanes[lane]
	log := &trainLog{number: number, began: time.Now()}
	p.mu.Lock()
	p.trains = log
	p.mu.Unlock()
	b := make([]byte, trainSize)
	to := netip.AddrPortFrom(l.flow.Dst, l.flow.DstPort)
	for i := range uint32(trainLength) {
		m := message{
			kind: kindProbe, ttl: l.ttl, answerTTL: l.backTTL, session: p.session, path: uint32(lane),
			round: trainBit | number&0xffff<<8 | i,
			sent:  l.flow, answerPort: l.back.SrcPort, answerLabel: l.back.Label,
		}
		p.secret.encode(b, &m)
		_ = l.socket.send(b, to, l.ttl, l.flow.Label) // what is not sent is not answered
	}
	for _, w := range behind {
		p.ask(w)
	}
	err = p.waitTrain(ctx, log)
	p.mu.Lock()
	defer p.mu.Unlock()
	return log.rates(), log.through, err
}

// waitTrain waits until the train is back, or nothing more of it comes.
func (p *Prober) waitTrain(ctx context.Context, log *trainLog) error {
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	got, since := 0, time.Now()
	for {
		p.mu.Lock()
		now := log.got
		p.mu.Unlock()
		if now != got {
			got, since = now, time.Now()
		}
		if got == trainLength || time.Since(since) > p.c.Timeout {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-poll.C:
		}
	}
}

func (g *trainLog) rates() Rates { return Rates{rateOf(g.there[:]), rateOf(g.back[:])} }

// rateOf is that of the second half of what arrived: what a queue let through
// at once is over then.
func rateOf(at []int64) float64 {
	at = slices.DeleteFunc(slices.Clone(at), func(t int64) bool { return t == 0 })
	const least = 8 // fewer say nothing
	if len(at) < least {
		return 0
	}
	slices.Sort(at)
	at = at[len(at)/2:]
	const headers = 8 + 20 + 14 // UDP, IPv4, Ethernet
	bits := float64(8 * (len(at) - 1) * (trainSize + headers))
	return min(Measurable, bits/max(time.Duration(at[len(at)-1]-at[0]).Seconds(), 1e-9))
}

// slowLanes are those whose rate is a slowRate-th of the best to the same
// target, or less.
func (p *Prober) slowLanes() (slow []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := p.bestRates()
	for i, l := range p.lanes {
		if l.rates.slow(best[l.target]) != "" {
			slow = append(slow, i)
		}
	}
	return slow
}

func (p *Prober) bestRates() []Rates {
	best := make([]Rates, len(p.c.Targets))
	for _, l := range p.lanes {
		b := &best[l.target]
		b.There, b.Back = max(b.There, l.rates.There), max(b.Back, l.rates.Back)
	}
	return best
}

// slow says in words how a path's rate is slow, "" if it is not.
func (r Rates) slow(best Rates) string {
	switch {
	case r.There > 0 && r.There*slowRate < best.There:
		return fmt.Sprintf("carries %s, the best path %s", bits(r.There), bits(best.There))
	case r.Back > 0 && r.Back*slowRate < best.Back:
		return fmt.Sprintf("carries %s on the way back, the best path %s", bits(r.Back), bits(best.Back))
	}
	return ""
}

// bits is a rate for people.
func bits(rate float64) string {
	switch {
	case rate >= Measurable:
		return fmt.Sprintf("%.0f Mbit/s or more", rate/1e6)
	case rate >= 10e6:
		return fmt.Sprintf("%.0f Mbit/s", rate/1e6)
	}
	return fmt.Sprintf("%.1f Mbit/s", rate/1e6)
}
