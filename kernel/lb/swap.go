package lb

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
)

// Bringing a set of another layout or other sizes into force. Apply has
// filled it; then:
//
//	pin it under PinDir/next ─▶ ( update the links ) ─▶ carry counters ─▶ exchange the folders ─▶ remove next
//
// The links' update is the critical section: before it packets use the old
// set, after it the new one, and a process killed anywhere leaves a state
// from which finishSwap can tell which, by the program that the links run.

// swapStopsAfter makes swapIn fail after a step, as if the process had been
// killed there: tests only.
var swapStopsAfter string

func stopAfter(step string) error {
	if swapStopsAfter == step {
		return fmt.Errorf("stopped after %q", step)
	}
	return nil
}

// swapLinks brings l.set into force for packets. On an error they stay with
// the set before. Plan p is what l.set holds.
func (l *LB) swapLinks(p *tables.Plan) error {
	next := filepath.Join(l.folder.Dir, dirNext)
	if err := l.set.Pin(next, mapMeta); err != nil {
		return err
	}
	if err := stopAfter("pinned"); err != nil {
		return err
	}
	if err := l.carryBefore(p); err != nil {
		l.log.Warn("the set before does not tell its counters or flows: some counters begin at zero, some tracked connections are not known", "error", err)
	}
	if err := l.holdAll(l.old); err != nil {
		l.folder.Undo()
		_ = os.RemoveAll(next)
		return err
	}
	l.attached = true
	return nil
}

// settleSwap makes l.set what is pinned. After an error it can be called
// again: every step is done already or changes nothing twice.
func (l *LB) settleSwap(p *tables.Plan) error {
	if l.old == nil {
		return l.folder.Settle(l.folder.Holds)
	}
	next := filepath.Join(l.folder.Dir, dirNext)
	if err := stopAfter("linked"); err != nil {
		return err
	}
	if l.oldReadable {
		// Those that came or went on while carryBefore read the table.
		if err := l.carryFlows(&l.flowsCarried); err != nil {
			l.log.Warn("connections that the set before tracked last are not known in the new one", "error", err)
		}
		if err := l.carryOld(p); err != nil {
			l.log.Warn("counters of the set before are lost", "error", err)
		}
		l.oldReadable = false // not to be counted twice
	}
	for i, d := range []string{kernel.DirMaps, kernel.DirPrograms} {
		if i < l.exchanged {
			continue
		}
		if err := kernel.Exchange(filepath.Join(l.folder.Dir, d), filepath.Join(next, d)); err != nil {
			return err
		}
		l.exchanged++
		if err := stopAfter(d + " exchanged"); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	l.old.close()
	l.old = nil
	l.log.Info("the new set of maps took over", "pin_dir", l.folder.Dir)
	return l.folder.Settle(l.folder.Holds)
}

// carryBefore takes over, before the links are updated, what would be wrong
// to add up later: open connections, which the programs count up and down
// from then on, and all that another layout has. And what must not be missing
// for a moment: the flow table, if its size changes. What the old set counts from
// here until the links are updated is lost.
func (l *LB) carryBefore(p *tables.Plan) error {
	if !l.oldReadable {
		if l.foreignCarried {
			return nil // by a try before
		}
		l.foreignCarried = true
		return l.carryForeign(p)
	}
	for _, v := range p.VIPs {
		r, ok := l.oldForce.ranges[v.ID]
		if !ok {
			continue
		}
		for slot := range min(r.Size, v.Lines.Size) {
			_, addr, err := readLine(l.old, r.First+slot)
			if err != nil {
				return err
			}
			if !addr.IsValid() || v.Server(slot).Addr != addr {
				continue
			}
			n, err := l.old.readConns(r.First + slot)
			if err != nil {
				return err
			}
			if err := l.set.writeConns(v.Lines.First+slot, n); err != nil {
				return err
			}
		}
	}
	var err error
	if l.flowsCarried, err = l.unit(l.old); err != nil {
		return err
	}
	return l.carryFlows(nil)
}

// carryOld takes over what an old set of this layout counted in server lines;
// its other counters, and its flow table if that keeps its size, are shared.
// Counts of slots that live on go to
// the slot, all others to their VIP's sum.
func (l *LB) carryOld(p *tables.Plan) error {
	f, err := readForce(l.old)
	if err != nil {
		return err
	}
	before, err := readCarried(l.old)
	if err != nil {
		return err
	}
	shared := sameMap(l.old.Maps[mapCarried], l.set.Maps[mapCarried])
	for _, v := range p.VIPs {
		r, ok := f.ranges[v.ID]
		if !ok {
			continue
		}
		for slot := range r.Size {
			line := r.First + slot
			n, addr, err := readLine(l.old, line)
			if err != nil {
				return err
			}
			key := carriedKey{v.ID, carriedGone}
			if addr.IsValid() && v.Server(slot).Addr == addr {
				key.Slot = slot
			}
			if !shared {
				n.add(before[carriedKey{v.ID, slot}])
			}
			if err := l.addCarried(key, n); err != nil {
				return err
			}
		}
		if !shared {
			if err := l.addCarried(carriedKey{v.ID, carriedGone}, before[carriedKey{v.ID, carriedGone}]); err != nil {
				return err
			}
		}
	}
	return nil
}

func sameMap(a, b *ebpf.Map) bool {
	x, errX := mapID(a)
	y, errY := mapID(b)
	return errX == nil && errY == nil && x == y
}

func mapID(m *ebpf.Map) (ebpf.MapID, error) {
	if m == nil {
		return 0, errors.New("no such map")
	}
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, ok := info.ID()
	if !ok {
		return 0, errors.New("this kernel gives maps no ids")
	}
	return id, nil
}

// finishSwap clears up after a process that was killed inside a swap. What
// the links run is what is in force; both folders are put right for it.
func finishSwap(pinDir string, log *slog.Logger) error {
	next := filepath.Join(pinDir, dirNext)
	if _, err := os.Stat(next); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	running, err := kernel.Running(pinDir)
	if err != nil {
		return err
	}
	candidate, err := loadPinned(next, nil)
	if err != nil {
		return err
	}
	defer candidate.close()
	current, err := loadPinned(pinDir, nil)
	if err != nil {
		return err
	}
	defer current.close()
	var inForce *ebpf.Program
	for _, o := range []*objects{current, candidate} {
		if p := o.Programs[progLB]; p != nil && (kernel.ProgramID(p) == running || inForce == nil) {
			inForce = p
		}
	}
	if inForce == nil {
		return os.RemoveAll(next)
	}
	// The two exchanges are independent: one may be done and the other not.
	if p := candidate.Programs[progLB]; p != nil && kernel.ProgramID(p) == kernel.ProgramID(inForce) {
		if err := kernel.Exchange(filepath.Join(pinDir, kernel.DirPrograms), filepath.Join(next, kernel.DirPrograms)); err != nil {
			return err
		}
	}
	uses, err := usesMap(inForce, candidate.Maps[mapLines])
	if err != nil {
		return err
	}
	if uses {
		if err := kernel.Exchange(filepath.Join(pinDir, kernel.DirMaps), filepath.Join(next, kernel.DirMaps)); err != nil {
			return err
		}
	}
	log.Info("finished the change of maps that a killed process had begun", "pin_dir", pinDir)
	return os.RemoveAll(next)
}

func usesMap(p *ebpf.Program, m *ebpf.Map) (bool, error) {
	if m == nil {
		return false, nil
	}
	id, err := mapID(m)
	if err != nil {
		return false, err
	}
	info, err := p.Info()
	if err != nil {
		return false, err
	}
	ids, _ := info.MapIDs()
	return slices.Contains(ids, id), nil
}
