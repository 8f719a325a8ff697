package lb

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/tables"
)

// Steered tunnels: rows of the map steers say which source port and flow label
// the connections of a server line get, so that the routers of the fabric, which
// read path selectors, send them along paths that are good. What stands in a
// row is decided elsewhere (fabric/steer, docs/steering.md); it is kept here by
// server, since lines come and go.
//
//	SetSteers ─▶ steerRows ─▶ rows of the lines in force
//	                 └──────▶ row of a new line, before anything names it
//
// Rows stay pinned: what a daemon that was killed chose holds until the next one
// knows better. A row of zeros, as a line has that nobody chose for, spreads
// its packets by their hash.

// SteerKey says whose row it is.
type SteerKey struct {
	Server netip.Addr
	// By is the VIP's setting: config.SteerServer or SteerConnection.
	By string
}

// steerWord is the entry as the program reads it.
func steerWord(e steer.Entry) uint64 { return uint64(e.Port) | uint64(e.Label&0xfffff)<<32 }

func steerEntry(word uint64) steer.Entry {
	return steer.Entry{Port: uint16(word), Label: uint32(word >> 32)}
}

// checkSteer: which path a tunnel takes depends on its source.
func (o *Options) checkSteer() error {
	for _, p := range []netip.Prefix{o.Source4, o.Source6} {
		if o.Steer && p.IsValid() && !p.IsSingleIP() {
			return fmt.Errorf("source %v: steered tunnels need one source address, since routers hash it: write one, %v for example", p, p.Addr())
		}
	}
	return nil
}

// SetSteers replaces the rows of servers. A server without one keeps the row
// that its line has. Each entry changes in one step for packets.
func (l *LB) SetSteers(rows map[SteerKey]steer.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return errClosed
	}
	l.steerRows = rows
	for line, w := range l.written {
		if !w.server.Steers() {
			continue
		}
		if row, ok := rows[steerKey(w.server)]; ok {
			if err := l.set.writeSteer(line, row); err != nil {
				return err
			}
		}
	}
	return nil
}

// SteerRowsInForce are the rows of the lines in force, by server.
func (l *LB) SteerRowsInForce() (map[SteerKey]steer.Row, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.set == nil {
		return nil, errClosed
	}
	rows := map[SteerKey]steer.Row{}
	for line, w := range l.written {
		if !w.server.Steers() || w.server.Steer == "" {
			continue
		}
		memory, err := l.set.mapSteers()
		if err != nil {
			return nil, err
		}
		var row steer.Row
		for i := range row {
			row[i] = steerEntry(atomic.LoadUint64(&memory[line].Entry[i]))
		}
		rows[steerKey(w.server)] = row
	}
	return rows, nil
}

func steerKey(s tables.Line) SteerKey { return SteerKey{s.Addr, s.Steer} }

// prepareSteer gives a line's row what its new server shall have.
func (l *LB) prepareSteer(line uint32, s tables.Line) error {
	if !s.Steers() {
		return nil
	}
	return l.set.writeSteer(line, l.steerRows[steerKey(s)])
}

// writeSteer writes what differs of a line's row.
func (o *objects) writeSteer(line uint32, row steer.Row) error {
	memory, err := o.mapSteers()
	if err != nil {
		return err
	}
	if int(line) >= len(memory) {
		return fmt.Errorf("map %s has %d rows, and none for server line %d", mapSteers, len(memory), line)
	}
	for i, e := range row {
		if at := &memory[line].Entry[i]; atomic.LoadUint64(at) != steerWord(e) {
			atomic.StoreUint64(at, steerWord(e))
		}
	}
	return nil
}

// mapSteers maps the rows, once for as long as the set is open.
func (o *objects) mapSteers() ([]bpf.Steer, error) {
	if o.steers != nil {
		return o.steers, nil
	}
	m := o.Maps[mapSteers]
	if m == nil {
		return nil, fmt.Errorf("no map %s is pinned", mapSteers)
	}
	size := pages(int(m.MaxEntries()) * int(unsafe.Sizeof(bpf.Steer{})))
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: map %d bytes of it into memory: %w", mapSteers, size, err)
	}
	o.mapped = append(o.mapped, b)
	o.steers = unsafe.Slice((*bpf.Steer)(unsafe.Pointer(&b[0])), int(m.MaxEntries()))
	return o.steers, nil
}

// steerRow is a line's row, for the model.
func (t *Twin) steerRow(line int) *model.Steer {
	var row bpf.Steer
	if t.set.Maps[mapSteers].Lookup(uint32(line), &row) != nil {
		return nil // fewer rows than lines
	}
	r := &model.Steer{}
	for i, w := range row.Entry {
		e := steerEntry(w)
		r[i] = model.Spread{Port: e.Port, Label: e.Label}
	}
	return r
}

// TunnelSource is the outer source address of tunnels to the server, their first
// if they have several.
func (l *LB) TunnelSource(server netip.Addr) netip.Addr { return l.asker.source(server) }
