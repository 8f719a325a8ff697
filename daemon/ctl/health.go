package ctl

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
)

// What balancers and switches know of servers' health: they check, and are asked.

var healthWord = map[fairleadv1.Health]string{
	fairleadv1.Health_HEALTH_UNSPECIFIED: "unchecked", fairleadv1.Health_HEALTH_UNKNOWN: "unknown",
	fairleadv1.Health_HEALTH_UP: "up", fairleadv1.Health_HEALTH_DOWN: "down",
}

// seen is what one balancer or switch says of all VIPs.
type seen struct {
	daemon string
	vips   []*fairleadv1.VIP
	err    error
}

// checkers asks balancers and switches of the desired state what they know.
func (c *ctl) checkers(ctx context.Context, cfg *config.Config) (all []seen) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	fronts := slices.Concat(cfg.Selves(config.RoleBalancer), cfg.Selves(config.RoleSwitch))
	all = make([]seen, len(fronts))
	room, done := make(chan struct{}, agentsAtOnce), make(chan struct{})
	for i, f := range fronts {
		go func() {
			room <- struct{}{}
			all[i] = seen{daemon: f.Name}
			all[i].vips, all[i].err = c.vipsAt(ctx, f.API)
			<-room
			done <- struct{}{}
		}()
	}
	for range fronts {
		<-done
	}
	return all
}

func (c *ctl) vipsAt(ctx context.Context, at string) ([]*fairleadv1.VIP, error) {
	front, err := c.clients.Dial(at, c.config.Load().TLS)
	if err != nil {
		return nil, err
	}
	status, err := front.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return status.Msg.Vips, nil
}

// healthOf is what all say of a server in a VIP. Who does not serve the VIP says nothing.
func healthOf(all []seen, vip string, slot uint32, server string) (health []*fairleadv1.SeenHealth) {
	for _, s := range all {
		if s.err != nil {
			health = append(health, &fairleadv1.SeenHealth{Daemon: s.daemon, Health: "silent", Detail: api.ErrorText(s.err)})
			continue
		}
		for _, v := range s.vips {
			for _, is := range v.Slots {
				if v.Name == vip && is.Number == slot && is.Server == server {
					health = append(health, &fairleadv1.SeenHealth{Daemon: s.daemon, Health: healthWord[is.Health], Detail: is.HealthDetail, SinceUnixMs: is.HealthSinceUnixMs})
				}
			}
		}
	}
	return health
}
