package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/fabric/topology"
)

// checkSteer looks at what a steered VIP needs beside its own settings.
func (c *Config) checkSteer(path string, v *VIP) {
	if !v.Steers() || v.Scheme.Row().Switched {
		return
	}
	path += ".steer"
	if c.Fabric == "" {
		c.problem(path, v.Steer, "no fabric is named, so that nobody knows of paths", "write fabric: /etc/fairlead/fabric.yaml at the top of this file")
	}
	for _, m := range v.Servers {
		if s := c.pool.named[m.Name]; s != nil && s.API == NoAgent {
			c.problem(path, v.Steer, "server "+m.Name+" has api: none, so that no agent there answers the probes that tell good paths from bad ones",
				"run `fairlead host` there and give it an api, or remove steer")
		}
	}
}

// checkSteerSources: routers hash a tunnel's source, so that a path is known for
// one source alone.
func (c *Config) checkSteerSources() {
	steered := slices.IndexFunc(c.VIPs, func(v VIP) bool { return v.Steers() && !v.Scheme.Row().Switched })
	if steered < 0 {
		return
	}
	for i, b := range c.Balancers {
		for _, f := range []struct {
			key    string
			source netip.Prefix
		}{{"source", b.Source}, {"source6", b.Source6}} {
			if f.source.IsValid() && !f.source.IsSingleIP() {
				c.problem(fmt.Sprintf("balancers[%d].%s", i, f.key), f.source.String(),
					fmt.Sprintf("vips[%d] (%s) has steer: %s, whose tunnels need one source address, since routers hash it", steered, c.VIPs[steered].Name, c.VIPs[steered].Steer),
					"write "+f.source.Addr().String()+", or remove steer")
			}
		}
	}
}

// checkFabric reads the fabric's file, and looks for the balancers and for the
// servers of steered VIPs in it.
func (c *Config) checkFabric() (found Problems) {
	if c.Fabric == "" {
		return nil
	}
	data, _, err := yamlfile.ReadBounded(c.Fabric, yamlfile.MaxFile)
	if err != nil { // what is wrong is the name here
		wrong, remedy := yamlfile.Unread(err, "write where the fabric's file is, such as /etc/fairlead/fabric.yaml")
		c.problem("fabric", c.Fabric, wrong, remedy)
		return nil
	}
	f, err := topology.Parse(c.Fabric, data)
	if err != nil {
		if own, ok := err.(yamlfile.Problems); ok {
			return own
		}
		c.problem("fabric", c.Fabric, err.Error(), "")
		return nil
	}
	steered := map[string]string{} // servers, and a VIP of theirs
	for _, v := range c.VIPs {
		for _, m := range v.Servers {
			if v.Steers() {
				steered[m.Name] = v.Name
			}
		}
	}
	if len(steered) == 0 {
		return nil
	}
	for i, b := range c.Balancers {
		from, err := steer.New(f, b.Name)
		if err != nil {
			c.problem(fmt.Sprintf("balancers[%d].name", i), b.Name, err.Error(), "add it to hosts of "+c.Fabric)
			continue
		}
		for j, s := range c.Servers {
			if vip := steered[s.Name]; vip != "" && s.Address.IsValid() {
				if err := from.Reaches(s.Address); err != nil {
					c.problem(fmt.Sprintf("servers[%d].address", j), s.Address.String(), fmt.Sprintf("VIP %s is steered, and balancer %s: %v", vip, b.Name, err),
						"put it right in "+c.Fabric+", or remove steer")
				}
			}
		}
	}
	return nil
}
