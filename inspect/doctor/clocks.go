package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/scheme/cheetah"
)

// answerTime bounds how long a daemon is waited for.
const answerTime = 2 * time.Second

// daemonClocks compares the shared clocks of all daemons that answer.
func (r *report) daemonClocks(ctx context.Context, o Options) {
	type clock struct {
		name   string
		offset int32 // to this machine's wall clock, ms
		source string
		err    error
	}
	var clocks []clock
	var endpoints []string
	add := func(name, endpoint string) {
		if endpoint != config.NoAgent {
			clocks = append(clocks, clock{name: name})
			endpoints = append(endpoints, endpoint)
		}
	}
	for _, b := range o.Config.Balancers {
		add(b.Name, b.API)
	}
	for _, s := range o.Config.Servers {
		add(s.Name, s.API)
	}
	balancersAndAgents := len(clocks)
	for _, s := range o.Config.Switches {
		add(s.Name, s.API)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var wg sync.WaitGroup
	for i := range clocks {
		c := &clocks[i]
		wg.Go(func() {
			client, err := api.Dial(endpoints[i], o.Config.TLS)
			if err != nil {
				c.err = err
				return
			}
			sent := time.Now()
			resp, err := client.GetTime(ctx, connect.NewRequest(&fairleadv1.GetTimeRequest{}))
			if err != nil {
				c.err = err
				return
			}
			middle := sent.Add(time.Since(sent) / 2)
			c.offset = int32(resp.Msg.SharedMs - uint32(middle.UnixMilli()))
			c.source = resp.Msg.Source
		})
	}
	wg.Wait()
	var silent []string
	var answered []clock
	for i, c := range clocks {
		if c.err != nil {
			silent = append(silent, c.name)
		} else if i < balancersAndAgents { // a switch has no shared clock
			answered = append(answered, c)
		}
	}
	if len(silent) > 0 {
		r.warn("daemons", fmt.Sprintf("%d of %d do not answer: %s", len(silent), len(clocks), strings.Join(silent, ", ")),
			"start them (fairlead lb, host, switch), or see their logs; on other machines they need an https api and TLS")
	} else {
		r.ok("daemons", fmt.Sprintf("all %d answer", len(clocks)))
	}
	if len(answered) < 2 {
		return
	}
	byOffset := func(a, b clock) int { return int(a.offset) - int(b.offset) }
	least, most := slices.MinFunc(answered, byOffset), slices.MaxFunc(answered, byOffset)
	spread := most.offset - least.offset
	detail := fmt.Sprintf("%d daemons' shared clocks lie within %d ms", len(answered), spread)
	if spread > 0 {
		detail += fmt.Sprintf(" (%s ahead of %s)", most.name, least.name)
	}
	remedy := "synchronise the machines' clocks (NTP); a daemon takes a new clock only after its connections are gone: fairlead unload on it, then start it again"
	switch {
	case spread > cheetah.SkewMS:
		r.fail("shared clock", detail+fmt.Sprintf("; cookies allow %d", cheetah.SkewMS), remedy)
	case spread > cheetah.SkewMS/2:
		r.warn("shared clock", detail+fmt.Sprintf("; cookies allow %d", cheetah.SkewMS), remedy)
	default:
		r.ok("shared clock", detail)
	}
}
