package topology

import "fmt"

// FatTree is the fat-tree of switches with k ports (Al-Fares et al.,
// SIGCOMM 2008; CFLB §4.2.1 has k = 8), k even, 4 to 128: k pods of k/2 edge
// and k/2 aggregation switches, k²/4 core switches, k³/4 hosts, any two of
// which in different pods have k²/4 paths.
//
// Hosts come first, pod by pod and edge switch by edge switch: host h is at
// edge switch h/(k/2). Then edge, aggregation (pod by pod) and core switches:
// core switch a·k/2+c is joined to aggregation switch a of every pod, by its
// port c. Links stand in the order host to edge, edge to aggregation,
// aggregation to core, each by its lower end, then by port; Ends[0] is the lower
// one. Ports upwards are 0 to k/2-1.
func FatTree(k int) (*Fabric, error) {
	if err := within("fat-tree", "k", k, 4, 2*maxRadix); err != nil {
		return nil, err
	}
	if k%2 != 0 {
		return nil, fmt.Errorf("fat-tree: k %d: must be even: half of a switch's ports lead up", k)
	}
	half := k / 2
	hosts, switches := half*half*k, half*k
	d := newDrawing(hosts+2*switches+half*half, 3*hosts)
	for h := range hosts {
		d.node(fmt.Sprintf("host-%d", h), true)
	}
	edge := len(d.fabric.Nodes)
	for i := range switches {
		d.node(fmt.Sprintf("edge-%d-%d", i/half, i%half), false)
	}
	agg := len(d.fabric.Nodes)
	for i := range switches {
		d.node(fmt.Sprintf("aggregation-%d-%d", i/half, i%half), false)
	}
	core := len(d.fabric.Nodes)
	for i := range half * half {
		d.node(fmt.Sprintf("core-%d-%d", i/half, i%half), false)
	}
	for h := range hosts {
		d.link(h, unnumbered, edge+h/half, unnumbered)
	}
	for i := range switches {
		for a := range half {
			d.link(edge+i, a, agg+i/half*half+a, unnumbered)
		}
	}
	for i := range switches {
		for c := range half {
			d.link(agg+i, c, core+i%half*half+c, unnumbered)
		}
	}
	return d.done(), nil
}
