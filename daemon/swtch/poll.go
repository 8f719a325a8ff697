package swtch

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/kernel/swtch"
)

// Agents are asked from time to time, all of them, and one of them at once when it has
// something to say (member.Agents). That an agent does not answer is counted of the
// former alone: how many times in a row it does is how long a restart may take.

// watchAgents asks all agents from time to time and hands on what they say.
func (p *plane) watchAgents(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.asked:
		}
		timer.Reset(pollInterval)
		p.mu.Lock()
		agents := maps.Clone(p.agents)
		p.mu.Unlock()
		text := ""
		if err := p.report(ctx, agents, true); err != nil {
			text = err.Error()
		}
		if text != failed && text != "" {
			p.log.Error("what agents say could not be put in force; trying again", "error", text)
		}
		failed = text
	}
}

// askSoon has a server's agent asked at once.
func (p *plane) askSoon(server string) {
	p.mu.Lock()
	p.news[server] = true
	p.mu.Unlock()
	daemon.Poke(p.told)
}

// watchNews asks agents that have something to say.
func (p *plane) watchNews(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.told:
		}
		p.mu.Lock()
		agents := map[string]*polled{}
		for name := range p.news {
			if agent := p.agents[name]; agent != nil {
				agents[name] = agent
			}
		}
		clear(p.news)
		p.mu.Unlock()
		_ = p.report(ctx, agents, false) // a poll says it again, and logs it
	}
}

// report asks agents once and hands on what they say; silence too, where it counts.
func (p *plane) report(ctx context.Context, agents map[string]*polled, silence bool) error {
	began := time.Now()
	reports := poll(ctx, agents)
	if ctx.Err() != nil {
		return nil // they were not really asked
	}
	p.telling.Lock()
	defer p.telling.Unlock()
	for name, r := range reports {
		if agent := agents[name]; began.Before(*agent.last) || !r.Answered && !silence {
			delete(reports, name)
		} else {
			*agent.last = began
		}
	}
	err := p.sw.Health(reports)
	p.changed()
	return err
}

// poll asks every one of agents once.
func poll(ctx context.Context, agents map[string]*polled) map[string]swtch.Report {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	reports := map[string]swtch.Report{}
	// All at once, 1,023 at most: behind agents that hang, others would look
	// as if they did not answer.
	for name, agent := range agents {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, pollTimeout)
			defer cancel()
			r := agent.ask(ctx)
			mu.Lock()
			defer mu.Unlock()
			reports[name] = r
		})
	}
	wg.Wait()
	return reports
}
