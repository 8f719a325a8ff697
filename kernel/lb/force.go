package lb

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// readForce reads what an adopted set's active half says.
func readForce(o *objects) (inForce, error) {
	f := inForce{ranges: map[uint32]tables.Range{}, hops: map[uint32]bool{}}
	c, err := o.readControl()
	if err != nil {
		return f, err
	}
	entries, err := o.readVIPs(c.Active & 1)
	if err != nil {
		return f, err
	}
	f.entries, f.first, f.seats = len(entries), migrating(entries), seatIdle(entries)
	base := (c.Active & 1) * o.capacity().TableEntries
	for _, e := range entries {
		f.ranges[e.Id] = tables.Range{First: e.FirstLine, Size: e.Slots}
		hash, policy := e.HashSize, e.NewSize
		if f.hops[e.Id] = vip.SchemeOf(e.Scheme).Hops; f.hops[e.Id] {
			hash, policy = uint32(tables.BucketEntries(int(hash))), 0
		}
		f.tables = max(f.tables, int(e.HashTable+hash-base), int(e.NewTable+policy-base))
	}
	return f, nil
}

// migrating are the VIPs whose entries count more than cookies.
func migrating(entries []bpf.VIP) map[uint32]bool {
	first := map[uint32]bool{}
	for _, e := range entries {
		first[e.Id] = first[e.Id] || bpf.VIPFlags(e.Flags)&bpf.VIPMigrates != 0
	}
	return first
}

// readWritten reads what the lines in force say.
func readWritten(o *objects, f inForce) (map[uint32]writtenLine, error) {
	written := map[uint32]writtenLine{}
	for id, r := range f.ranges {
		for line := r.First; line < r.End(); line++ {
			var cpus []bpf.Line
			if err := o.Maps[mapLines].Lookup(line, &cpus); err != nil {
				return nil, fmt.Errorf("server line %d: %w", line, err)
			}
			for i := range cpus {
				cpus[i].Packets, cpus[i].Bytes, cpus[i].Opened = 0, 0, 0
			}
			image := cpus[0]
			w := writtenLine{image: image, uneven: slices.ContainsFunc(cpus, func(c bpf.Line) bool { return c != image })}
			if dst := tables.LineWord(image.MacDst); dst.Forwarding() != 0 {
				w.server = tables.Line{Addr: tables.AddrOf(image.Addr), Forwarding: dst.Forwarding(), Hops: f.hops[id],
					Flags: dst.Flags() & (bpf.LineClosed | bpf.LineDown | bpf.LineSteered)}
			}
			written[line] = w
		}
	}
	return written, nil
}

// DownServer is a server that takes nothing new for its health.
type DownServer struct {
	VIP     uint32
	Slot    uint16
	Address netip.Addr
}

// Down is who is down by the lines in force: when the balancer was opened, by what
// the process before put there last.
func (l *LB) Down() (down []DownServer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, r := range l.force.ranges {
		for line := r.First; line < r.End(); line++ {
			if w := l.written[line]; w.server.Addr.IsValid() && w.server.Flags&bpf.LineDown != 0 {
				down = append(down, DownServer{id, uint16(line - r.First), w.server.Addr})
			}
		}
	}
	return down
}
