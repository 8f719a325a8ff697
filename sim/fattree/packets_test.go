package fattree

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/soak"
)

// smallPackets is a second in a fat-tree of 16 hosts.
func smallPackets() *Packets {
	o := NewPackets()
	o.K, o.Subflows, o.Seconds, o.Rate = 4, []int{1, 2}, 1, 20
	return o
}

func TestPacketsSameBytes(t *testing.T) {
	var first []byte
	for _, workers := range []int{1, 2} {
		b, err := json.Marshal(run(t, smallPackets(), sim.Common{Seed: 3, Seeds: 2, Workers: workers}))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = b
		} else if !bytes.Equal(b, first) {
			t.Errorf("%d workers: other bytes", workers)
		}
	}
}

// Packets follow the fluids on the same paths, whose curves are scenario
// fat-tree's; in a soak with three seeds.
func TestPacketsFollowFluids(t *testing.T) {
	o := smallPackets()
	o.K, o.Seconds = 6, 3
	common := sim.Common{Seed: 1, Seeds: 1}
	if soak.On() {
		common.Seeds = 3
	}
	all, err := o.runAll(t.Context(), common)
	if err != nil {
		t.Fatal(err)
	}
	f := small()
	f.K, f.Larger = 6, nil
	fluids, err := f.runAll(t.Context(), common)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []way{hashed, way(o.Rounds)} {
		for _, n := range o.Subflows {
			flowing := all.over(packetPoint{n, w, true}, throughput)
			if of := fluids.over(point{f.main(), n, w}, throughput); of != flowing {
				t.Errorf("%d subflows, way %d: fluids %v, in scenario fat-tree %v", n, w, flowing, of)
			}
			if found := all.over(packetPoint{n, w, false}, throughput); found.Mean < 0.9*flowing.Mean || found.Mean > 1.1*flowing.Mean {
				t.Errorf("%d subflows, way %d: packets %v, fluids %v", n, w, found, flowing)
			}
		}
	}
}

func TestNothingLost(t *testing.T) {
	o := smallPackets()
	o.Seconds, o.Buffer = 0.1, 100_000
	if _, err := o.Run(t.Context(), sim.Common{Seed: 1, Seeds: 1}); err == nil {
		t.Error("no queue was ever full, and nobody says so")
	}
}

func TestBadPackets(t *testing.T) {
	for _, arg := range []string{
		"--k=3", "--k=18", "--rounds=-1", "--subflows=0", "--subflows=2,2", "--seconds=0", "--seconds=1000", "--rate=0",
		"--buffer=0", "--delay=-1s", "--min-rto=1us",
	} {
		bad(t, NewPackets(), arg)
	}
	o := NewPackets()
	o.Delay = time.Minute
	if err := o.Check(); err == nil {
		t.Error("a delay of a minute is good")
	}
}
