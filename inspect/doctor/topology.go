package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// routesAsked is how many addresses one call of GetRoutes takes.
const routesAsked = 1024

// topologyDoctor compares a fabric's file with what its routers say.
type topologyDoctor struct {
	report
	f         *topology.Fabric
	net       *paths.Net
	links     []string // their names
	hosts     []int    // the node of each address
	addresses []netip.Addr
}

// routerAnswer is what a router says: its routes to the addresses, in their
// order.
type routerAnswer struct {
	node   int
	status *fairleadv1.GetStatusResponse
	routes []*fairleadv1.RouterRoute
	err    error
}

// Topology asks the fabric's routers for their routes to each host and
// compares them with the file: each selector that is made from a wrong file
// leads somewhere else. It names the first disagreement, by the file's order of
// routers and hosts, and counts the others.
func Topology(ctx context.Context, f *topology.Fabric) []Check {
	d := &topologyDoctor{f: f, links: f.LinkNames()}
	var err error
	if d.net, err = paths.New(f); err != nil {
		d.fail("fabric", err.Error(), "correct the file")
		return d.checks
	}
	for i, n := range f.Nodes {
		for _, a := range n.Addresses {
			if n.Host {
				d.hosts, d.addresses = append(d.hosts, i), append(d.addresses, a)
			}
		}
	}
	answers := d.askRouters(ctx)
	d.unheard(answers)
	d.selectors(answers)
	d.routes(answers)
	return d.checks
}

// askRouters asks all routers that read selectors, at the same time.
func (d *topologyDoctor) askRouters(ctx context.Context) []routerAnswer {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var answers []routerAnswer
	for i, n := range d.f.Nodes {
		if !n.Host && !n.Plain {
			answers = append(answers, routerAnswer{node: i})
		}
	}
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { d.askRouter(ctx, &answers[i]) })
	}
	wg.Wait()
	return answers
}

func (d *topologyDoctor) askRouter(ctx context.Context, a *routerAnswer) {
	client, err := api.Dial(d.f.Nodes[a.node].API, d.f.TLS)
	if err != nil {
		a.err = err
		return
	}
	status, err := client.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		a.err = err
		return
	}
	a.status = status.Msg
	for some := range slices.Chunk(d.addresses, routesAsked) {
		var texts []string
		for _, address := range some {
			texts = append(texts, address.String())
		}
		routes, err := client.GetRoutes(ctx, connect.NewRequest(&fairleadv1.GetRoutesRequest{Addresses: texts}))
		if err == nil && len(routes.Msg.Routes) != len(some) {
			err = fmt.Errorf("it answered %d of %d addresses", len(routes.Msg.Routes), len(some))
		}
		if err != nil {
			a.err = err
			return
		}
		a.routes = append(a.routes, routes.Msg.Routes...)
	}
}

// unheard: routers that cannot be compared.
func (d *topologyDoctor) unheard(answers []routerAnswer) {
	var names []string
	var first error
	for _, a := range answers {
		if a.err != nil {
			names = append(names, d.f.Nodes[a.node].Name)
			if first == nil {
				first = a.err
			}
		}
	}
	say := d.warn
	if len(names) == len(answers) {
		say = d.fail // nothing was
	}
	if len(names) > 0 {
		say("routers", fmt.Sprintf("not compared, as they do not answer: %s (%s: %v)", strings.Join(names, ", "), names[0], first),
			"start fairlead router there; a router on another machine needs api: https://address:port in fabric.yaml")
	}
}

// selectors: all must read the file's.
func (d *topologyDoctor) selectors(answers []routerAnswer) {
	digest := d.f.Selector.Digest()
	var differ []string
	asked := 0
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		asked++
		if a.status.Router.GetSelector().GetDigest() != digest {
			differ = append(differ, d.f.Nodes[a.node].Name)
		}
	}
	switch {
	case len(differ) > 0:
		d.fail("selector", "other than this file's (key, permutation, radix or fields, or a build with other hashes) at "+strings.Join(differ, ", ")+": what is steered goes elsewhere there",
			"give all routers and hosts the same build and selector, and restart the routers that have another")
	case asked > 0:
		d.ok("selector", fmt.Sprintf("the same at %d routers", asked))
	}
}

// routes: the first disagreement.
func (d *topologyDoctor) routes(answers []routerAnswer) {
	wrong, compared := 0, 0
	var detail, remedy string
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		for i := range d.addresses {
			compared++
			say, do := d.compare(a.node, i, a.routes[i])
			if say == "" {
				continue
			}
			if wrong++; wrong == 1 {
				detail, remedy = say, do
			}
		}
	}
	switch {
	case wrong > 0:
		if wrong > 1 {
			detail += fmt.Sprintf("; so do %d more of %d routes", wrong-1, compared)
		}
		d.fail("routes", detail, remedy)
	case compared > 0:
		d.ok("routes", fmt.Sprintf("%d, all as the file says", compared))
	}
}

// compare says how a router's route to an address disagrees with the file, and
// what to do; "" if it does not.
func (d *topologyDoctor) compare(router, address int, is *fairleadv1.RouterRoute) (detail, remedy string) {
	name, host := d.f.Nodes[router].Name, d.f.Nodes[d.hosts[address]].Name
	to := fmt.Sprintf("%s (%s)", host, d.addresses[address])
	var wanted []int
	if routes, err := d.net.Routes(paths.Place{Node: router}, paths.Place{Node: d.hosts[address], Addr: d.addresses[address]}, paths.Rules{}); err == nil {
		for _, h := range routes.First() {
			wanted = append(wanted, h.Link)
		}
	}
	if is.Kind == "connected" && len(wanted) > 0 {
		return "", "" // the neighbour is not known yet; its link is
	}
	var has []int
	for _, m := range is.Members {
		if !m.Usable {
			continue
		}
		link, say := d.linkOf(router, m)
		if link < 0 {
			return fmt.Sprintf("%s sends to %s by %s, and no link of the file is known to be that", name, to, say),
				"write the link's devices or addresses in the file, or add the link; see `ip route get` there"
		}
		if say != "" {
			return fmt.Sprintf("%s: %s", name, say), "correct the ports of the link in the file, and restart the router: its numbers are the file's"
		}
		has = append(has, link)
	}
	missing, extra := others(wanted, has), others(has, wanted)
	switch {
	case len(missing) > 0:
		detail = fmt.Sprintf("%s does not send to %s over %s, and the file says that it does", name, to, d.names(missing))
		return detail, "see the link there (ip link, ip route get); if it is gone, write down: true at it in the file"
	case len(extra) > 0:
		detail = fmt.Sprintf("%s sends to %s over %s, too, and by the file another way is shorter", name, to, d.names(extra))
		return detail, "correct the links' cost in the file, or the routes there"
	}
	return "", ""
}

// linkOf is the link of a router's next hop; -1 if none is known to be it. say describes the hop then, or what
// contradicts.
func (d *topologyDoctor) linkOf(router int, m *fairleadv1.RouterMember) (link int, say string) {
	gateway, _ := netip.ParseAddr(m.Gateway)
	byHop, byPort := d.f.LinkOf(router, m.Interface, gateway, int(m.Port))
	hop := fmt.Sprintf("%s on %s", m.Gateway, m.Interface)
	if m.Port >= 0 {
		hop = fmt.Sprintf("port %d, %s", m.Port, hop)
	}
	switch {
	case byPort >= 0 && byHop >= 0 && byPort != byHop:
		return byHop, fmt.Sprintf("its %s, is %s, and the file says port %d is %s", hop, d.links[byHop], m.Port, d.links[byPort])
	case byHop >= 0:
		return byHop, ""
	case byPort >= 0:
		return byPort, ""
	}
	return -1, hop
}

func (d *topologyDoctor) names(links []int) string {
	var names []string
	for _, l := range links {
		names = append(names, d.links[l])
	}
	return strings.Join(names, ", ")
}

// others are those of a that b has not.
func others(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(x int) bool { return slices.Contains(b, x) })
}
