package mptcp

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/fabric/topology"
)

// fake is a kernel: it keeps names of addresses and ports as the real one
// does, also those of subflows that the peer refused.
type fake struct {
	list    []Subflow
	names   map[uint8]netip.AddrPort
	refuses bool                       // the peer takes no subflow
	errs    func(netip.AddrPort) error // of create, by the local end
	gone    bool                       // no program manages the connections
	created int
	removed []uint8
}

func (f *fake) subflows() ([]Subflow, error)                       { return slices.Clone(f.list), nil }
func (f *fake) events(context.Context, time.Time) ([]event, error) { return nil, nil }
func (f *fake) close() error                                       { return nil }

func (f *fake) create(token uint32, id uint8, local, remote netip.AddrPort) error {
	if f.gone {
		return unix.EINVAL
	}
	if f.errs != nil {
		if err := f.errs(local); err != nil {
			return err
		}
	}
	if has, ok := f.names[id]; ok && has != local {
		return unix.EINVAL
	}
	f.names[id] = local
	f.created++
	if !f.refuses {
		f.list = append(f.list, Subflow{Token: token, Local: local, Remote: remote, LocalID: id, State: stateEstablished, Established: true, Client: true})
	}
	return nil
}

func (f *fake) destroy(s *Subflow) error {
	delete(f.names, s.LocalID)
	f.list = slices.DeleteFunc(f.list, func(o Subflow) bool { return o.key() == s.key() })
	return nil
}

func (f *fake) remove(_ uint32, id uint8) error {
	if f.gone {
		return unix.EINVAL
	}
	f.removed = append(f.removed, id)
	if _, ok := f.names[id]; !ok {
		return unix.EINVAL
	}
	delete(f.names, id)
	return nil
}

// data passes on all subflows but those of which fails says true.
func (f *fake) data(fails func(*Subflow) bool) {
	for i := range f.list {
		s := &f.list[i]
		if fails(s) {
			s.Info.Backoff, s.Info.Unacked = failedBackoff, 1
			continue
		}
		s.Info.Acked++
	}
}

// bench is a manager of a fake kernel's one connection.
type bench struct {
	t   *testing.T
	m   *Manager
	k   *fake
	now time.Time
	log bytes.Buffer
}

// leafSpine is one of two hosts and so many spines.
func leafSpine(t *testing.T, spines int) *topology.Fabric {
	t.Helper()
	f, err := topology.LeafSpine(2, spines, 1)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newBench(t *testing.T, f *topology.Fabric, o Options) *bench {
	b := &bench{t: t, now: time.Unix(1000, 0), k: &fake{names: map[uint8]netip.AddrPort{}}}
	o.Net = newNet(t, f, nil)
	o.Log = slog.New(slog.NewTextHandler(&b.log, nil))
	b.m = newManager(o, b.k, b.k)
	address := func(host string) netip.Addr { return f.Nodes[node(t, o.Net, host)].Addresses[0] }
	b.k.list = []Subflow{{Token: 7, Local: netip.AddrPortFrom(address("host-0"), 40000), Remote: netip.AddrPortFrom(address("host-1"), 80),
		State: stateEstablished, Established: true, Client: true}}
	return b
}

// look lets so much time pass and looks.
func (b *bench) look(pass time.Duration) {
	b.t.Helper()
	b.now = b.now.Add(pass)
	if err := b.m.look(b.now); err != nil {
		b.t.Error(err)
	}
}

// spines are those over which subflows lead, sorted.
func (b *bench) spines() (names []string) {
	for i := range b.k.list {
		l := b.k.list[i].listed(b.m.net)
		names = append(names, l.Path[2])
	}
	slices.Sort(names)
	return names
}

// TestAvoidedInNewFile: a link that failed is avoided under its name, not
// under its number, when the file is read again.
func TestAvoidedInNewFile(t *testing.T) {
	of := leafSpine(t, 4)
	b := newBench(t, of, Options{Subflows: 3})
	b.look(period)
	b.look(period)
	over := b.spines()
	if len(slices.Compact(slices.Clone(over))) != 3 {
		t.Fatalf("subflows over %v, want three", over)
	}
	bad := over[0]
	before := b.m.net
	b.k.data(func(s *Subflow) bool { return s.listed(before).Path[2] == bad })
	b.look(period)
	avoided := func() (names []string) {
		for h := range b.m.avoided {
			names = append(names, b.m.net.LinkName(h.Link))
		}
		slices.Sort(names)
		return names
	}
	want := avoided()
	if len(want) != 2 || !strings.Contains(want[0], bad) || !strings.Contains(want[1], bad) {
		t.Fatalf("%v avoided, want those of %s", want, bad)
	}

	slices.Reverse(of.Links)
	b.m.SetNet(newNet(t, of, nil))
	if got := avoided(); !slices.Equal(got, want) {
		t.Errorf("%v avoided after the links have other numbers, want %v", got, want)
	}
	b.k.data(func(*Subflow) bool { return false })
	b.look(period)
	b.look(period)
	if over := b.spines(); len(over) != 3 || slices.Contains(over, bad) {
		t.Errorf("subflows over %v, want three without %s", over, bad)
	}

	// Links that are not there any more are forgotten.
	of.Links = slices.DeleteFunc(of.Links, func(l topology.Link) bool {
		return of.Nodes[l.Ends[0].Node].Name == bad || of.Nodes[l.Ends[1].Node].Name == bad
	})
	b.m.SetNet(newNet(t, of, nil))
	if got := avoided(); len(got) > 0 {
		t.Errorf("%v avoided, which are not there", got)
	}
}

// TestRefusedForHours: the names of subflows that a peer refused are given
// back, so that the connection gets its subflows when the peer takes them.
func TestRefusedForHours(t *testing.T) {
	b := newBench(t, leafSpine(t, 4), Options{})
	b.k.refuses = true
	for range 24 * 60 * 4 {
		b.look(15 * time.Second)
	}
	if b.k.created < 1000 || len(b.k.names) > 8 {
		t.Errorf("%d subflows asked for, the kernel has names of %d", b.k.created, len(b.k.names))
	}
	if n := strings.Count(b.log.String(), "takes no more subflows"); n != 1 {
		t.Errorf("said %d times:\n%.2000s", n, b.log.String())
	}
	b.k.refuses = false
	b.look(longestPause)
	b.look(longestPause)
	if over := b.spines(); len(slices.Compact(slices.Clone(over))) != 4 {
		t.Errorf("subflows over %v when the peer takes them again", over)
	}
}

// TestNamesOfAnother: a manager before this one may have left the kernel with
// names for all numbers.
func TestNamesOfAnother(t *testing.T) {
	b := newBench(t, leafSpine(t, 2), Options{})
	for id := 1; id <= 255; id++ {
		b.k.names[uint8(id)] = netip.AddrPortFrom(b.k.list[0].Local.Addr(), uint16(id))
	}
	for range 20 {
		b.look(longestPause)
	}
	if over := b.spines(); len(over) != 2 || over[0] == over[1] {
		t.Errorf("subflows over %v; the log says:\n%s", over, b.log.String())
	}
}

// TestMissedOnce: the name of a subflow that one list of the kernel's lacks
// stays: giving it back would make the peer end the subflow.
func TestMissedOnce(t *testing.T) {
	b := newBench(t, leafSpine(t, 2), Options{})
	b.look(period)
	b.look(period)
	if len(b.k.list) != 2 {
		t.Fatalf("%d subflows, want 2", len(b.k.list))
	}
	whole := slices.Clone(b.k.list)
	b.k.list = whole[:1]
	b.k.errs = func(netip.AddrPort) error { return unix.ENOTCONN } // no other one meanwhile
	b.look(period)
	b.k.list = whole
	for range 10 {
		b.look(period)
	}
	if len(b.k.removed) > 0 {
		t.Errorf("names %v given back", b.k.removed)
	}
	b.k.list = whole[:1]
	for range 10 {
		b.look(period)
	}
	if !slices.Equal(b.k.removed, []uint8{whole[1].LocalID}) {
		t.Errorf("names %v given back, want %d", b.k.removed, whole[1].LocalID)
	}
}

// TestErrorsPause: what the kernel refuses for good is asked ever more seldom,
// and said once a minute at most.
func TestErrorsPause(t *testing.T) {
	b := newBench(t, leafSpine(t, 2), Options{})
	asked := 0
	b.k.errs = func(netip.AddrPort) error { asked++; return unix.EPERM }
	for range 240 {
		b.look(period)
	}
	if said := strings.Count(b.log.String(), "gets no further subflow"); asked < 3 || asked > 7 || said != 1 {
		t.Errorf("asked %d times and said %d times in a minute:\n%s", asked, said, b.log.String())
	}
	for range 20 * 60 {
		b.look(time.Second)
	}
	if asked > 30 {
		t.Errorf("asked %d times in 21 minutes", asked)
	}
}

// TestSaidOnce: what many connections have in common is said once, and nothing
// of those that are gone, or the kernel's.
func TestSaidOnce(t *testing.T) {
	many := func(b *bench) {
		first := b.k.list[0]
		for i := range 100 {
			s := first
			s.Token += uint32(i) + 1
			s.Local = netip.AddrPortFrom(s.Local.Addr(), s.Local.Port()+uint16(i)+1)
			b.k.list = append(b.k.list, s)
		}
	}
	b := newBench(t, leafSpine(t, 2), Options{})
	b.k.refuses = true
	many(b)
	for range 30 {
		b.look(time.Second)
	}
	if lines := strings.Count(b.log.String(), "\n"); lines != 1 || !strings.Contains(b.log.String(), "takes no more subflows") || strings.Contains(b.log.String(), "errno") {
		t.Errorf("%d lines, want one:\n%.2000s", lines, b.log.String())
	}

	b = newBench(t, leafSpine(t, 2), Options{})
	b.k.gone = true
	many(b)
	for range 30 {
		b.look(time.Second)
	}
	if b.log.Len() > 0 {
		t.Errorf("said of connections that are gone:\n%.2000s", b.log.String())
	}
}

// TestAddressMissing: paths from an address that the host does not have are
// left out for a while; the others are used.
func TestAddressMissing(t *testing.T) {
	of := twoCards(t)
	b := newBench(t, of, Options{Subflows: 3})
	missing := netip.MustParseAddr("10.0.2.1")
	asked := 0
	b.k.errs = func(local netip.AddrPort) error {
		if local.Addr() == missing {
			asked++
			return unix.EADDRNOTAVAIL
		}
		return nil
	}
	for range 30 {
		b.look(period)
	}
	if len(b.k.list) != 3 || asked != 3 {
		t.Errorf("%d subflows, want 3; asked for %d from the missing address, want one for each of its paths; the log says:\n%s", len(b.k.list), asked, b.log.String())
	}
	if !strings.Contains(b.log.String(), "10.0.2.1") || !strings.Contains(b.log.String(), "correct its addresses in fabric.yaml") {
		t.Errorf("the log says:\n%s", b.log.String())
	}
	// The address comes; the next subflow is from there.
	b.k.errs = nil
	b.k.list = b.k.list[:2]
	b.look(localFor)
	if !slices.ContainsFunc(b.k.list, func(s Subflow) bool { return s.Local.Addr() == missing }) {
		t.Errorf("no subflow from the address that came: %+v", b.k.list)
	}
}

// twoCards is a host with an address on each of two links to a router, from which
// three links lead to the router of another one.
func twoCards(t *testing.T) *topology.Fabric {
	t.Helper()
	of := &topology.Fabric{
		Nodes: []topology.Node{{Name: "host-0", Host: true, TTL: 64}, {Name: "r1", TTL: 64}, {Name: "r2", TTL: 64}, {Name: "host-1", Host: true, TTL: 64}},
	}
	of.Selector = leafSpine(t, 2).Selector
	of.Selector.Radix = 4
	link := func(a, b, port int, address string) {
		l := topology.Link{Ends: [2]topology.End{{Node: a, Port: port}, {Node: b, Port: -1}}, Cost: 1}
		if address != "" {
			l.Ends[0].Address = netip.MustParseAddr(address)
			of.Nodes[a].Addresses = append(of.Nodes[a].Addresses, l.Ends[0].Address)
		}
		of.Links = append(of.Links, l)
	}
	link(0, 1, -1, "10.0.1.1")
	link(0, 1, -1, "10.0.2.1")
	link(1, 2, 0, "")
	link(1, 2, 1, "")
	link(1, 2, 2, "")
	link(3, 2, -1, "10.0.3.1")
	return of
}

// TestAddressOfLink: an address that stands on a link is not used over another.
func TestAddressOfLink(t *testing.T) {
	of := twoCards(t)
	loopback := netip.MustParseAddr("10.0.9.1")
	of.Nodes[0].Addresses = append(of.Nodes[0].Addresses, loopback) // by both
	b := newBench(t, of, Options{Subflows: 2})
	b.look(period)
	if len(b.k.list) != 2 || b.k.list[0].Local.Addr() != of.Links[0].Ends[0].Address {
		t.Fatalf("%+v", b.k.list)
	}
	// Of both links the second one is better than one that is shared.
	if a := b.k.list[1].Local.Addr(); a != loopback && a != of.Links[1].Ends[0].Address {
		t.Errorf("a subflow over the second link from %s", a)
	}
}
