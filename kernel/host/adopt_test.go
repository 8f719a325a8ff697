package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
)

// newMaps are those that an agent of the build before schemes beamer and faild
// does not pin.
var newMaps = []string{"host_notes", "host_peers", "host_senders", "host_sources", "host_own", "host_flows", "host_nics", "host_asks"}

// An older build's pins are adopted: counts are carried to the map with more
// reasons, maps that it had not are made, and its connections live.
func TestAdoptsAnOlderBuild(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	r.listen(hosttest.VIP4)
	r.during(func() {
		c := r.dial(hosttest.VIP4)
		r.echo(c, 1000)
		r.agent.Close()

		// As it would have left them.
		maps := filepath.Join(r.pin, kernel.DirMaps)
		for _, name := range newMaps {
			if err := os.Remove(filepath.Join(maps, name)); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(maps, mapReasons)
		now, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer now.Close()
		const fewer = 14
		old, err := ebpf.NewMap(&ebpf.MapSpec{Type: now.Type(), KeySize: now.KeySize(), ValueSize: now.ValueSize(), MaxEntries: fewer})
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		cpus, err := ebpf.PossibleCPU()
		if err != nil {
			t.Fatal(err)
		}
		for reason := range uint32(fewer) {
			counts := make([]bpf.Count, cpus)
			for cpu := range counts {
				counts[cpu] = bpf.Count{Packets: uint64(1000*int(reason) + cpu), Bytes: 1e6}
			}
			if err := old.Put(reason, counts); err != nil {
				t.Fatal(err)
			}
		}
		if err := kernel.Replace(old, path); err != nil {
			t.Fatal(err)
		}

		r.open()
		if !r.agent.Status().Adopted {
			t.Error("nothing was adopted")
		}
		r.echo(c, 1000)
		if l := r.live(1); l.Epochs[0] != 1 {
			t.Errorf("live: %+v, want 1", l)
		}
		want := uint64(0)
		for cpu := range cpus {
			want += uint64(1000*3 + cpu)
		}
		if got := r.reason(reasonNames[3]); got < want || got > want+1000 {
			t.Errorf("%s counts %d, want %d and what came since", reasonNames[3], got, want)
		}
		for _, name := range append(newMaps, mapReasons) {
			if _, err := os.Stat(filepath.Join(maps, name)); err != nil {
				t.Error(err)
			}
		}
	})
	// The map that grew is the pinned one: the next agent finds it.
	before := r.reason(reasonNames[3])
	r.reopen(r.as)
	if got := r.reason(reasonNames[3]); got < before {
		t.Errorf("%s counts %d after a restart, %d before", reasonNames[3], got, before)
	}
}
