package lb

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/health"
	"github.com/fairlead/fairlead/kernel/lb"
)

// What a balancer knows of its servers outlives its daemon: a server that was down
// gets nothing new from the first packet on, until checks say otherwise. It stands
// in two places:
//
//	health.json    all that is known, across reboots
//	server lines   who is down, in the maps that packets go by: also where the
//	               disk took nothing, or the daemon was killed in between
//
// Who is down by either is down: whoever is so wrongly is up again after as many
// checks as it takes at any other time.

// healthName is the file of what is known.
const healthName = "health.json"

// remember reads what was known. It is for before the first assignment.
func (b *balancer) remember() {
	err := b.m.State.Parse(healthName, "", func(data []byte) error { return json.Unmarshal(data, &b.known) })
	if err != nil {
		b.log.Warn("what was known of servers' health cannot be read; they count as up until checks say otherwise", "error", err)
	}
}

// recall hands what is known, of a's servers, to the checks that are to begin.
func (b *balancer) recall(a *controller.Assignment) {
	b.checks.Recall(recalled(a, b.known, b.lb.Down()))
}

// recalled is what known and the lines that say down tell of a's targets.
func recalled(a *controller.Assignment, known []health.Known, down []lb.DownServer) (all []health.Known) {
	byKey, inLine := map[health.Key]health.Known{}, map[health.Key]netip.Addr{}
	for _, k := range known {
		byKey[health.Key{VIP: k.VIP, Slot: k.Slot}] = k
	}
	for _, d := range down {
		inLine[health.Key{VIP: d.VIP, Slot: d.Slot}] = d.Address
	}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if !isChecked(v) {
			continue
		}
		for _, s := range v.Slots {
			key, t := health.Key{VIP: v.ID, Slot: s.Number}, target(v, s)
			k, ok := byKey[key]
			ok = ok && k.Is(t)
			if inLine[key] == s.Address && (!ok || k.Up) {
				k, ok = health.Known{VIP: v.ID, Slot: s.Number, Server: s.Server, Address: t.Address, Detail: "it was down when this daemon was started"}, true
			}
			if ok {
				all = append(all, k)
			}
		}
	}
	return all
}

// isChecked says whether a balancer checks v's servers.
func isChecked(v *controller.VIP) bool { return v.Health != nil && !v.Scheme.Row().Switched }

// target is how s is checked, but for its line.
func target(v *controller.VIP, s controller.Slot) health.Target {
	h := v.Health
	return health.Target{VIP: v.ID, VIPName: v.Name, Slot: s.Number, Server: s.Server, At: s.Address,
		Address: netip.AddrPortFrom(v.Address, h.Port), Type: h.Type, Path: h.Path, Host: h.Host,
		Interval: h.Interval, Timeout: h.Timeout, Rise: h.Rise, Fall: h.Fall}
}

// agents are those of the servers that are checked, by server.
func agents(a *controller.Assignment) map[string]string {
	all := map[string]string{}
	for i := range a.VIPs {
		if v := &a.VIPs[i]; isChecked(v) {
			for _, s := range v.Slots {
				all[s.Server] = s.API
			}
		}
	}
	return all
}

// keepHealth writes what is known whenever it changes. A burst of changes takes a
// few writings.
func (b *balancer) keepHealth(ctx context.Context) error {
	var last []byte
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.learned:
		}
		data, err := json.MarshalIndent(b.checks.Known(), "", " ")
		if err != nil || bytes.Equal(data, last) {
			continue // no field can fail
		}
		last = data
		if err := b.m.State.Keep(healthName, append(data, '\n')); err != nil {
			b.log.Warn("what is known of servers' health is not on disk; a reboot forgets it", "error", err)
		}
	}
}
