package lb

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/soak"
)

// TestFlowTableRaces: several CPUs write flows into the places of expired ones
// while another sweeps these away. Each flow that was taken is there after it,
// once, and no other.
func TestFlowTableRaces(t *testing.T) {
	const (
		rounds  = 60
		writers = 3
		each    = 1000 // of rigFlows * flowWays entries
	)
	r := newRig(t)
	r.commit()
	random := soak.Rand(t)
	for round := range rounds {
		fillExpired(t, r, random)
		records := make([][]bpf.Shared, writers)
		known := map[uint64]bool{} // by what an entry tells of the key
		for w := range records {
			for range each {
				x := random.Uint64()
				records[w] = append(records[w], bpf.Shared{X: x, Slot: 1, State: FlowConfirmed})
				known[told(x)] = true
			}
		}
		var all sync.WaitGroup
		var taken atomic.Uint64
		failed := make(chan error, writers+1)
		for _, mine := range records {
			all.Go(func() {
				for len(mine) > 0 {
					var w bpf.FlowWrite
					w.Count = uint32(copy(w.Record[:], mine))
					mine = mine[w.Count:]
					if _, err := r.o.FlowWrite.Run(&ebpf.RunOptions{Context: w, ContextOut: &w}); err != nil {
						failed <- err
						return
					}
					taken.Add(uint64(w.Taken))
				}
			})
		}
		all.Go(func() {
			for range 3 {
				w := bpf.FlowSweep{Count: rigFlows}
				if _, err := r.o.FlowSweep.Run(&ebpf.RunOptions{Context: w, ContextOut: &w}); err != nil {
					failed <- err
				}
			}
		})
		all.Wait()
		close(failed)
		for err := range failed {
			t.Fatal(err)
		}
		found := map[uint64]bool{}
		for i, b := range readBuckets(t, r) {
			for at, tag := range b.Tag[:jet.Ways] {
				e := b.Entry[at]
				if tag == 0 {
					continue
				}
				key := e>>32<<32 | uint64(i)<<7 | uint64(tag&0x7f)
				if !known[key] {
					if (uint16(rigNow>>10) - uint16(e>>16)) > 118 {
						continue // an expired one that the sweep did not meet
					}
					t.Fatalf("round %d: bucket %d has an entry %x of tag %x that nobody wrote", round, i, e, tag)
				}
				if found[key] {
					t.Fatalf("round %d: bucket %d has %x twice", round, i, e)
				}
				found[key] = true
			}
		}
		if uint64(len(found)) != taken.Load() {
			t.Fatalf("round %d: %d flows are in the table, %d were taken", round, len(found), taken.Load())
		}
		if len(found) < writers*each*9/10 {
			t.Fatalf("round %d: only %d of %d flows were taken", round, len(found), writers*each)
		}
	}
}

// told is what bucket, tag and fingerprint say of a key in the rig's table.
func told(x uint64) uint64 {
	bucket := uint64(uint32(x)) * rigFlows >> 32
	return x>>32<<32 | bucket<<7 | x&0x7f
}

// TestFlowTableLosesNothing: of CPUs that write into the same buckets at the
// same time, of which all entries may give way, each gets its flows in.
func TestFlowTableLosesNothing(t *testing.T) {
	const (
		writers = 2
		calls   = 4000
		buckets = 16 // of the table's
	)
	r := newRig(t)
	r.commit()
	seed := soak.Seed(t)
	fillFlows(t, r, rigNow>>10, FlowNew)
	var all sync.WaitGroup
	var taken atomic.Uint64
	failed := make(chan error, writers)
	for writer := range uint64(writers) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, writer))
			for range calls {
				w := bpf.FlowWrite{Count: bpf.FlowWrites}
				for i := range w.Record {
					x := random.Uint64()&^(1<<32-1) | random.Uint64N(buckets<<32/rigFlows)
					w.Record[i] = bpf.Shared{X: x, Slot: 1, State: FlowNew, Tcp: 1}
				}
				if _, err := r.o.FlowWrite.Run(&ebpf.RunOptions{Context: w, ContextOut: &w}); err != nil {
					failed <- err
					return
				}
				taken.Add(uint64(w.Taken))
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
	const told = writers * calls * bpf.FlowWrites
	t.Logf("%d of %d flows were not taken", told-taken.Load(), told)
	if told-taken.Load() > told/10_000 {
		t.Errorf("%d of %d flows lost a race for a place, more than 1 in 10,000", told-taken.Load(), told)
	}
}

// fillExpired fills every entry with one that expired long ago.
func fillExpired(t *testing.T, r *rig, random *rand.Rand) {
	t.Helper()
	fillFlowsOf(t, r, random, rigNow>>10+(1<<16-10_000), FlowConfirmed) // the clock wraps
}

// fillFlows fills every entry with one of nobody's, last used at unit.
func fillFlows(t *testing.T, r *rig, unit uint32, state uint8) {
	t.Helper()
	fillFlowsOf(t, r, rand.New(rand.NewPCG(1, 2)), unit, state)
}

func fillFlowsOf(t *testing.T, r *rig, random *rand.Rand, unit uint32, state uint8) {
	t.Helper()
	keys, values := make([]uint32, rigFlows), make([]bpf.FlowSet, rigFlows)
	for i := range values {
		keys[i] = uint32(i)
		for at := range jet.Ways {
			values[i].Tag[at] = 0x80 | byte(random.Uint32())
			values[i].Entry[at] = random.Uint64()<<32 | uint64(uint16(unit))<<16 | uint64(state)<<14
		}
	}
	if _, err := r.o.Flows.BatchUpdate(keys, values, nil); err != nil {
		t.Fatal(err)
	}
}

func readBuckets(t *testing.T, r *rig) []bpf.FlowSet {
	t.Helper()
	all := make([]bpf.FlowSet, rigFlows)
	for i := range all {
		if err := r.o.Flows.Lookup(uint32(i), unsafe.Pointer(&all[i])); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
