package paths

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// The path service asks the routers' daemons how many bytes went to each next
// hop, and makes loads of links of what they say. Hosts and plain routers do
// not answer; what their links carry may be reported (ReportLoad).

// measurementsKept is for how many rounds a measurement counts.
const measurementsKept = 5

// routerAsker asks one router.
type routerAsker struct {
	node   int
	client fairleadv1connect.FairleadClient
	last   map[string]hopBytes // by interface and gateway
}

// hopBytes is a counter, and when it was read.
type hopBytes struct {
	bytes uint64
	at    time.Time
}

// measure asks routers until ctx ends.
func (d *server) measure(ctx context.Context) error {
	tick := time.NewTicker(d.o.Measure)
	defer tick.Stop()
	var current *view
	var askers []*routerAsker
	for {
		if now := d.service.view(); now != current {
			current, askers = now, d.askers(now.fabric)
		}
		d.round(ctx, current, askers)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// askers are one for each router whose API can be reached from here.
func (d *server) askers(f *topology.Fabric) (out []*routerAsker) {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Host || n.Plain || n.API == "" {
			continue
		}
		client, err := api.Dial(n.API, f.TLS)
		if err != nil {
			d.Log.Warn("a router cannot be asked what its links carry", "router", n.Name, "error", err)
			continue
		}
		out = append(out, &routerAsker{node: i, client: client, last: map[string]hopBytes{}})
	}
	return out
}

// round asks all of them once, at the same time.
func (d *server) round(ctx context.Context, v *view, askers []*routerAsker) {
	ctx, stop := context.WithTimeout(ctx, max(d.o.Measure, time.Second))
	defer stop()
	warnings := make([]string, len(askers))
	var done sync.WaitGroup
	for i, a := range askers {
		name, endpoint := v.fabric.Nodes[a.node].Name, v.fabric.Nodes[a.node].API
		if path, ok := strings.CutPrefix(endpoint, "unix:"); ok {
			if _, err := os.Stat(path); err != nil {
				continue // the file's default, and another machine's
			}
		}
		done.Go(func() {
			if err := d.ask(ctx, v, a); err != nil {
				warnings[i] = fmt.Sprintf("router %s does not say what its links carry: %v; start `fairlead router` there, or correct its api in the file", name, err)
			}
		})
	}
	done.Wait()
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return w == "" })
	d.service.silent.Store(&warnings)
}

// ask puts what one router counted since it was last asked onto its links.
func (d *server) ask(ctx context.Context, v *view, a *routerAsker) error {
	resp, err := a.client.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return err
	}
	now := time.Now()
	if resp.Msg.Router == nil {
		return fmt.Errorf("the daemon %s answers there, which is no router", resp.Msg.Name)
	}
	rates, counted := map[paths.Hop]float64{}, map[string]hopBytes{}
	for _, h := range resp.Msg.Router.Hops {
		key := h.Interface + " " + h.Gateway
		counted[key] = hopBytes{h.Bytes, now}
		last, known := a.last[key]
		hop, ok := linkOf(v.fabric, a.node, h)
		if !known || !ok || h.Bytes < last.bytes {
			continue // counted anew: it has started again
		}
		rates[hop] += float64(h.Bytes-last.bytes) * 8 / now.Sub(last.at).Seconds()
	}
	a.last = counted
	until := now.Add(measurementsKept * d.o.Measure)
	for hop, rate := range rates {
		if v.fabric.Links[hop.Link].Capacity == 0 {
			continue // nothing to compare with
		}
		if err := v.scheduler.Load(hop, rate, until); err != nil {
			return err
		}
	}
	return nil
}

// linkOf is the link that a router's next hop is, in its direction: as the file
// describes it, or by the port's number.
func linkOf(f *topology.Fabric, node int, h *fairleadv1.RouterHop) (paths.Hop, bool) {
	gateway, _ := netip.ParseAddr(h.Gateway)
	link, numbered := f.LinkOf(node, h.Interface, gateway, int(h.Port))
	if link < 0 {
		link = numbered
	}
	if link < 0 {
		return paths.Hop{}, false
	}
	hop := paths.Hop{Link: link}
	if f.Links[link].Ends[0].Node != node {
		hop.From = 1
	}
	return hop, true
}
