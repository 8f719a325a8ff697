package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

// The verbs as a service is asked for them: requests to operations. Code gives their
// errors codes.

// AddServer puts a server into one VIP's pool, or into those of all VIPs for
// which the desired state names it, there as a standby where that says so.
func (c *Coordinator) AddServer(ctx context.Context, r *fairleadv1.AddServerRequest) (*Change, error) {
	op := controller.Op{Kind: controller.Add, VIP: r.Vip, Server: r.Server, Weight: int(r.Weight), Standby: r.Standby}
	if r.Address != "" {
		a, err := netip.ParseAddr(r.Address)
		if err != nil {
			return nil, controller.Invalid(fmt.Sprintf("%s: address %s: not an IP address", r.Server, r.Address))
		}
		op.Address = a
	}
	cfg, err := c.Wanted(ctx)
	if err != nil {
		return nil, err
	}
	if other := elsewhere(cfg, r.Server); other != "" {
		return nil, controller.Invalid(fmt.Sprintf("server %s: %s is called so, and no configuration could name both; give the server another name", r.Server, other))
	}
	if s, ok := cfg.Server(r.Server); ok && (!op.Address.IsValid() || op.Address == s.Address) {
		op.Address, op.API = s.Address, s.API
	}
	op.API = cmp.Or(r.Api, op.API)
	ops := []controller.Op{op}
	if r.Vip == "" {
		ops = nil
		for _, v := range cfg.VIPs {
			for _, m := range v.Servers {
				if m.Name == r.Server {
					one := op
					one.VIP = v.Name
					one.Standby = one.Standby || m.Standby
					if one.Weight == 0 {
						one.Weight = m.Weight
					}
					ops = append(ops, one)
				}
			}
		}
		if len(ops) == 0 {
			return nil, controller.NotFound(fmt.Sprintf("no vip of the configuration has a server %q; name the vip", r.Server))
		}
	}
	return c.Do(ctx, Options{Force: r.Force, Without: r.Without}, ops...)
}

// elsewhere is what of cfg, other than a server, is called name; "": nothing. Machines
// share their names: a server called so would be in no configuration.
func elsewhere(cfg *config.Config, name string) string {
	if _, ok := cfg.Balancer(name); ok {
		return "a balancer"
	}
	if _, ok := cfg.Switch(name); ok {
		return "a switch"
	}
	if slices.ContainsFunc(cfg.Controllers, func(c config.Controller) bool { return c.Name == name }) {
		return "a controller"
	}
	return ""
}

// insteadOf is what to do with a machine that is no server, where a verb names it.
var insteadOf = map[string]string{
	"a balancer":   "it is not of tier two, which alone drains; to take it out of service stop `fairlead lb` there, which withdraws what it announces first and breaks nothing; for good, take it out of the file and `fairlead apply`",
	"a switch":     "`fairlead drain` and `undrain` of it ask the switch itself, at its own api, and take no VIP",
	"a controller": "nothing is drained there: the others go on when it stops",
}

// misnamed is err, or where that is that nobody knows a server which is another machine
// of the deployment, what that is and what to do.
func misnamed(ch *Change, ops []controller.Op, err error) error {
	missing := controller.NotFound("")
	if !errors.As(err, &missing) || ch == nil || ch.view == nil || ch.view.cfg == nil {
		return err
	}
	for _, op := range ops {
		if other := elsewhere(ch.view.cfg, op.Server); op.Server != "" && other != "" {
			return controller.Invalid(fmt.Sprintf("%s is %s and no server of a VIP; %s", op.Server, other, insteadOf[other]))
		}
	}
	return err
}

// DrainServer gives a server no new connections.
func (c *Coordinator) DrainServer(ctx context.Context, r *fairleadv1.DrainServerRequest) (*Change, error) {
	return c.Do(ctx, Options{Force: r.Force, Without: r.Without}, controller.Op{Kind: controller.Drain, VIP: r.Vip, Server: r.Server})
}

// UndrainServer gives a drained server, or a standby, new connections.
func (c *Coordinator) UndrainServer(ctx context.Context, r *fairleadv1.UndrainServerRequest) (*Change, error) {
	return c.Do(ctx, Options{Force: r.Force, Without: r.Without}, controller.Op{Kind: controller.Undrain, VIP: r.Vip, Server: r.Server})
}

// RemoveServer takes a server out of a pool; its slot rests.
func (c *Coordinator) RemoveServer(ctx context.Context, r *fairleadv1.RemoveServerRequest) (*Change, error) {
	return c.Do(ctx, Options{Force: r.Force, Without: r.Without}, controller.Op{Kind: controller.Remove, VIP: r.Vip, Server: r.Server})
}

// SetWeight changes a server's share of new connections.
func (c *Coordinator) SetWeight(ctx context.Context, r *fairleadv1.SetWeightRequest) (*Change, error) {
	// Bounded before the conversion, so that no value wraps into the range.
	return c.Do(ctx, Options{Force: r.Force, Without: r.Without},
		controller.Op{Kind: controller.Weight, VIP: r.Vip, Server: r.Server, Weight: int(min(r.Weight, 1<<20))})
}

// RotateKey begins a new epoch with a random key.
func (c *Coordinator) RotateKey(ctx context.Context, r *fairleadv1.RotateKeyRequest) (*Change, error) {
	return c.Do(ctx, Options{Force: r.Force, Without: r.Without}, controller.Op{Kind: controller.Rotate})
}
