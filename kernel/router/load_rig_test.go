package router

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	xlink "github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"

	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/kernel"
)

// Actions of XDP.
const (
	xdpAborted = iota
	xdpDrop
	xdpPass
	xdpTX
	xdpRedirect
)

// rigDevice is where packets of test runs come in: the loopback.
const rigDevice = 1

// rig is the program with maps that Apply fills, packet in and packet out by
// test runs: no interface, nothing pinned.
type rig struct {
	*Plane
	t testing.TB
}

func rigSelector(t testing.TB, c pathsel.Config) *pathsel.Selector {
	t.Helper()
	if c.Permutation == "" {
		c.Permutation = pathsel.Feistel
	}
	if c.Radix == 0 {
		c.Radix = 16
	}
	if c.IPv4 == "" {
		c.IPv4 = pathsel.Ports
	}
	if c.IPv6 == "" {
		c.IPv6 = pathsel.Ports
	}
	s, err := pathsel.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newRig loads the program under these options; a nil selector: any.
func newRig(t testing.TB, o Options) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test loads BPF programs: run it as root")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	if o.Selector == nil {
		o.Selector = rigSelector(t, pathsel.Config{Key: [16]byte{1, 2, 3}})
	}
	if o.Name == "" {
		o.Name = "rig"
	}
	p := &Plane{o: o}
	spec, err := p.spec()
	if err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("load: %+v", err)
	}
	p.set = &set{Set: kernel.NewSet(coll)}
	t.Cleanup(func() { p.set.close() })
	if p.state, err = readState(p.set); err != nil {
		t.Fatal(err)
	}
	return &rig{p, t}
}

// apply is Apply without the links.
func (r *rig) apply(t Tables) {
	r.t.Helper()
	if err := newChange(r.Plane, &t).run(func() error { return nil }); err != nil {
		r.t.Fatal(err)
	}
}

// run gives the program a frame.
func (r *rig) run(frame []byte) (action uint32, out []byte) {
	r.t.Helper()
	in := frame
	if len(in) < 14 { // a test run wants an Ethernet header
		r.t.Fatalf("a frame of %d bytes", len(in))
	}
	out = make([]byte, len(in)+64)
	o := ebpf.RunOptions{Data: in, DataOut: out, Repeat: 1}
	action, err := r.set.program().Run(&o)
	if err != nil {
		r.t.Fatal(err)
	}
	return action, o.DataOut
}

// why runs a frame and says under which reason it was counted, or, with
// forwarded, by which hop and how it left.
func (r *rig) why(frame []byte) (reason string, action uint32, out []byte) {
	r.t.Helper()
	before, err := r.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	action, out = r.run(frame)
	after, err := r.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	total := uint64(0)
	for i, n := range after.Passed {
		if d := n.Packets - before.Passed[i].Packets; d > 0 {
			reason, total = n.Name, total+d
			if bytes := n.Bytes - before.Passed[i].Bytes; bytes != uint64(len(frame)) {
				r.t.Errorf("%s counts %d bytes of a frame of %d", n.Name, bytes, len(frame))
			}
		}
	}
	forwarded := after.Ways.Total() - before.Ways.Total()
	if total+forwarded != 1 {
		r.t.Fatalf("a packet is counted %d times", total+forwarded)
	}
	if (forwarded == 1) != (action == xdpRedirect) {
		r.t.Fatalf("action %d of a packet that is counted under %q", action, reason)
	}
	return reason, action, out
}

// detach takes the program off a device behind the daemon's back.
func (w *wires) detach(device string) {
	w.t.Helper()
	l, err := xlink.LoadPinnedLink(filepath.Join(w.pinDir, kernel.DirLinks, linkPin(w.index[device])), nil)
	w.must(err)
	defer l.Close()
	w.must(l.Detach())
}
