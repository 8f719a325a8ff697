package lb

import "github.com/fairlead/fairlead/bpf"

// TwinLeft is what one packet left behind in the twin's maps: the differences
// of counters from before to after.
type TwinLeft struct {
	// Line counted the packet, -1: none did.
	Line           int
	Packets, Bytes uint64
	Opened         uint64
	// Open is by how much the line's open connections changed.
	Open int32
	// Of the VIP with this id.
	VIP                                               uint32
	NewConns, Fallback, FlowHits, BadCookies, Dropped uint64
	Tracked, FlowFull, FlowReplaced                   uint64
	// Flows is the number of entries of the flow table that were made,
	// renewed or otherwise changed.
	Flows int
}

// Observe runs a frame as Run does and tells what it left behind.
func (t *Twin) Observe(frame []byte, cpu int) (TwinRun, TwinLeft, error) {
	left := TwinLeft{Line: -1}
	before, err := t.glance(cpu)
	if err != nil {
		return TwinRun{}, left, err
	}
	run, err := t.Run(frame)
	if err != nil {
		return run, left, err
	}
	after, err := t.glance(cpu)
	if err != nil {
		return run, left, err
	}
	for i, l := range after.lines {
		if b := before.lines[i]; l.Packets != b.Packets {
			left.Line, left.Packets, left.Bytes, left.Opened = i, l.Packets-b.Packets, l.Bytes-b.Bytes, l.Opened-b.Opened
			left.Open = after.conns[i] - before.conns[i]
		}
	}
	for id, c := range after.vips {
		if b := before.vips[id]; c != b {
			left.VIP = uint32(id)
			left.NewConns, left.Fallback, left.FlowHits = c.NewConns-b.NewConns, c.Fallback-b.Fallback, c.FlowHits-b.FlowHits
			left.BadCookies, left.Dropped = c.BadCookies-b.BadCookies, c.Dropped-b.Dropped
			left.Tracked, left.FlowFull, left.FlowReplaced = c.Tracked-b.Tracked, c.FlowFull-b.FlowFull, c.FlowReplaced-b.FlowReplaced
		}
	}
	for i, b := range after.flows {
		for j, e := range b.Entry {
			if was := before.flows[i]; e != was.Entry[j] || b.Tag[j] != was.Tag[j] {
				left.Flows++
			}
		}
	}
	return run, left, nil
}

// glance is everything that a packet may change.
type glance struct {
	lines []bpf.Line
	conns []int32
	vips  []bpf.VIPCPU
	flows []bpf.FlowSet
}

func (t *Twin) glance(cpu int) (g glance, err error) {
	if g.lines, err = readArray[bpf.Line](t, mapLines, cpu); err != nil {
		return g, err
	}
	if g.vips, err = readArray[bpf.VIPCPU](t, mapVIPCPU, cpu); err != nil {
		return g, err
	}
	if g.flows, err = readArray[bpf.FlowSet](t, mapFlows, cpu); err != nil {
		return g, err
	}
	g.conns, err = readArray[int32](t, mapConns, cpu)
	return g, err
}
