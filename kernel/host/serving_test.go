package host

import (
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/scheme/faild"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// chainAssignment has one VIP of each family and protocol on port 80, of
// scheme beamer or faild, with this server and another.
func chainAssignment(scheme choices.Scheme) *controller.Assignment {
	as := &controller.Assignment{Version: 1, Keys: []controller.Key{{Epoch: 0, Secret: secret(0)}}, HashKey: hash.Key{7, 11},
		Sources: []netip.Prefix{netip.PrefixFrom(hosttest.Client4, 32), netip.PrefixFrom(hosttest.Client6, 128)}}
	servers := []buckets.Server{{Number: 3, Weight: 1}, {Number: 5, Weight: 1}}
	for _, a := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
		for _, protocol := range []string{choices.TCP, choices.UDP} {
			mine, other := hosttest.Server4, hosttest.Client4
			if a.Is6() {
				mine, other = hosttest.Server6, hosttest.Client6
			}
			as.VIPs = append(as.VIPs, controller.VIP{
				ID:       uint32(len(as.VIPs) + 1),
				Settings: choices.Settings{Name: fmt.Sprintf("v%d", len(as.VIPs)+1), Address: a, Port: 80, Protocol: protocol, Scheme: scheme, Policy: choices.ByTheHash, Affinity: choices.Connection, Forwarding: choices.IPIP, MSSClamp: true, Fragments: choices.Drop, ChainTime: 4 * time.Minute},
				Buckets:  buckets.New(100, servers),
				Slots: []controller.Slot{
					{Number: 3, Server: "other", Address: other, State: controller.Active, Weight: 1},
					{Number: 5, Server: "s", Address: mine, State: controller.Active, Weight: 1},
				},
			})
		}
	}
	return as
}

// newChainRig is a rig whose agent serves VIPs of scheme beamer or faild. The
// client's packets come without a tunnel, as copies and checks do.
func newChainRig(t *testing.T, as *controller.Assignment) *rig {
	t.Helper()
	base, err := hosttest.New()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Rig: base, t: t, as: as, port: 80, now: func() uint32 { return uint32(kernel.MonotonicMS()) + 0xfff12345 }}
	r.pin = kernel.Dir(fmt.Sprintf("host-%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid()))
	t.Cleanup(func() {
		if r.agent != nil {
			r.agent.Close()
		}
		if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
			t.Error(err)
		}
		r.Close()
	})
	if err := r.Server.Sysctl("net.ipv4.tcp_syncookies", "0"); err != nil {
		t.Fatal(err)
	}
	r.open()
	return r
}

// run does the agent's background work until the test, or stop, ends it.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	agent := r.agent
	go func() { done <- agent.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(stop)
	return stop
}

// reopen replaces the agent as a kill and a restart would, with another
// assignment in force after it.
func (r *rig) reopen(as *controller.Assignment) {
	r.t.Helper()
	r.agent.Close()
	r.as = as
	r.open()
}

func (r *rig) serving(vip uint32) Serving {
	r.t.Helper()
	for _, s := range r.agent.Serving(true) {
		if s.VIP == vip {
			return s
		}
	}
	r.t.Fatalf("VIP %d: nothing is said", vip)
	return Serving{}
}

// owns is the buckets that s says are owned.
func (s *Serving) owns() map[int]bool {
	all := map[int]bool{}
	for b := range s.Buckets {
		if s.Owned[b/8]>>(b%8)&1 != 0 {
			all[b] = true
		}
	}
	return all
}

// wantBucket is a connection's bucket, by cheetah's hash alone.
func wantBucket(as *controller.Assignment, client net.Addr) int {
	hash := hash.Tuple(as.HashKey, netip.MustParseAddrPort(client.String()), 80)
	return int(hash >> 32 * 100 >> 32)
}

// listenOn is an echo server at an address of the server.
func (r *rig) listenOn(address string) net.Listener {
	r.t.Helper()
	var l net.Listener
	err := r.Server.Do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
	go serve(l)
	return l
}

// What lives here is owned: established, half open, and in TIME_WAIT.
func TestServingCountsConnections(t *testing.T) {
	t.Parallel()
	for i, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
		t.Run(vip.String(), func(t *testing.T) {
			r := newChainRig(t, chainAssignment(choices.Beamer))
			id := uint32(2*i + 1)
			if s := r.serving(id); s.Connections != 0 || len(s.owns()) != 0 || s.Slot != 5 || s.Buckets != 100 || s.Generation != 1 {
				t.Fatalf("before any connection: %+v", s)
			}
			// IPv4's as well through a listener of both families.
			r.listenOn(":80")
			want := map[int]bool{}
			var conns []net.Conn
			for range 30 {
				c := r.dial(vip)
				r.echo(c, 100)
				want[wantBucket(r.as, c.LocalAddr())] = true
				conns = append(conns, c)
			}
			same := func(what string, connections uint64) {
				t.Helper()
				eventually(t, what, func() bool {
					s := r.serving(id)
					owns := s.owns()
					if s.Connections != connections || len(owns) != len(want) {
						return false
					}
					for b := range want {
						if !owns[b] {
							return false
						}
					}
					return true
				})
			}
			same("30 connections are owned", 30)
			// The client closes first: nothing stays at the server.
			want = map[int]bool{}
			for _, c := range conns[1:] {
				c.Close()
			}
			want[wantBucket(r.as, conns[0].LocalAddr())] = true
			same("one connection is owned", 1)

			// Half open: the SYN-ACK goes to nobody.
			ghost := netip.MustParseAddr("10.99.0.77")
			if vip.Is6() {
				ghost = netip.MustParseAddr("fd99::77")
			}
			if err := r.Server.Neighbour(hosttest.ServerInterface, ghost); err != nil {
				t.Fatal(err)
			}
			syn := wire.TCP{Src: netip.AddrPortFrom(ghost, 4321), Dst: netip.AddrPortFrom(vip, 80), Flags: wire.SYN, Seq: 1,
				Options: wire.SYNOptions(1460, 1)}
			frame, err := r.Client.Frame(hosttest.ClientInterface, r.Server, hosttest.ServerInterface, syn.Packet())
			if err == nil {
				err = r.Client.Send(hosttest.ClientInterface, frame)
			}
			if err != nil {
				t.Fatal(err)
			}
			want[wantBucket(r.as, net.TCPAddrFromAddrPort(syn.Src))] = true
			same("a half-open connection is owned, and is no connection yet", 1)
		})
	}
}

// A server that closes first owns the connection until TIME_WAIT ends.
func TestServingCountsTimeWait(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Beamer))
	var l net.Listener
	err := r.Server.Do(func() (err error) {
		l, err = net.Listen("tcp", "10.99.99.99:80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := r.dial(hosttest.VIP4)
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	c.Read(make([]byte, 1))
	c.Close()
	eventually(t, "the bucket is owned, with no connection left", func() bool {
		s := r.serving(1)
		return s.Connections == 0 && len(s.owns()) == 1 && s.owns()[wantBucket(r.as, c.LocalAddr())]
	})
}

// UDP's connected sockets are connections; those that listen are none.
func TestServingCountsDatagrams(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Beamer))
	clients := []string{"10.99.0.1:5001", "10.99.0.1:5002"}
	for _, client := range clients {
		err := r.Server.Do(func() error {
			c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(hosttest.VIP4, 80)),
				net.UDPAddrFromAddrPort(netip.MustParseAddrPort(client)))
			if err == nil {
				t.Cleanup(func() { c.Close() })
			}
			return err
		})
		if err != nil {
			// A second socket at the same address needs SO_REUSEADDR.
			t.Logf("%s: %v", client, err)
			clients = clients[:1]
			break
		}
	}
	s := r.serving(2)
	if int(s.Connections) != len(clients) || !s.owns()[wantBucket(r.as, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(clients[0])))] {
		t.Errorf("%+v, want %d connections", s, len(clients))
	}
	// Flows without a socket, as the program notes them.
	port := func(p uint16) uint16 { return bits.ReverseBytes16(p) }
	now := r.agent.SharedNow()
	for i, seen := range []uint32{now, now - 10, now - 5*60*1000} { // the last one ended long ago
		key := bpf.Tuple{Addr: [2]uint64{0, 0xffff0000 | 0x0100630a<<32}, Sport: port(uint16(6000 + i)), Dport: port(80), VipId: 2}
		if err := r.agent.set.HostFlows.Put(key, seen); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "two flows are counted", func() bool { return int(r.serving(2).Connections) == len(clients)+2 })
	s = r.serving(2)
	for i := range 2 {
		b := wantBucket(r.as, net.UDPAddrFromAddrPort(netip.AddrPortFrom(hosttest.Client4, uint16(6000+i))))
		if !s.owns()[b] {
			t.Errorf("flow %d: bucket %d is not owned", i, b)
		}
	}
}

// With affinity by address a client's connections are one bucket's.
func TestServingAffinity(t *testing.T) {
	t.Parallel()
	as := chainAssignment(choices.Beamer)
	as.VIPs[0].Affinity = choices.Address
	r := newChainRig(t, as)
	r.listenOn(":80")
	for range 10 {
		r.echo(r.dial(hosttest.VIP4), 10)
	}
	eventually(t, "ten connections in one bucket", func() bool {
		s := r.serving(1)
		return s.Connections == 10 && len(s.owns()) == 1
	})
}

// Faild's buckets are those of the switch's hash, TIME_WAIT's among them.
func TestServingFaild(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Faild))
	var l net.Listener
	err := r.Server.Do(func() (err error) {
		l, err = net.Listen("tcp", ":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	is := func(what string, connections uint64, buckets ...int) {
		t.Helper()
		eventually(t, what, func() bool {
			s := r.serving(3)
			owns := s.owns()
			for _, b := range buckets {
				if !owns[b] {
					return false
				}
			}
			return s.Connections == connections && s.Buckets > 0 && len(owns) == len(buckets)
		})
	}
	is("nothing lives here", 0)
	c := r.dial(hosttest.VIP6)
	client, vip := c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort()
	bucket := wire.FaildBucket(faild.Seed(r.as.HashKey), client, vip, wire.ProtoTCP, r.as.VIPs[slices.IndexFunc(r.as.VIPs, func(v controller.VIP) bool { return v.ID == 3 })].Buckets.Len())
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	is("a connection lives here", 1, bucket)
	a.Close()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	c.Read(make([]byte, 1))
	c.Close()
	// Two counts, so that no last look at the living one is meant.
	for range 2 {
		at := r.serving(3).At
		eventually(t, "another count", func() bool { return !r.serving(3).At.Equal(at) })
	}
	is("TIME_WAIT is here", 0, bucket)
}

// unsettled counts the VIPs that the programs do not take for settled, and all.
func (r *rig) unsettled() (set, all int) {
	r.t.Helper()
	used, err := readTable(r.agent.set.HostVips, r.agent.control)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, v := range used.Entries {
		all++
		if v.Flags&uint16(bpf.HostVIPUnsettled) != 0 {
			set++
		}
	}
	return set, all
}

// The server's own state follows its listener; by the assignment it is
// disabled.
func TestServingState(t *testing.T) {
	t.Parallel()
	as := chainAssignment(choices.Beamer)
	as.VIPs = as.VIPs[:1]
	as.VIPs[0].Health = &choices.Health{Type: "tcp", Port: 80, Interval: 20 * time.Millisecond, Timeout: time.Second, Rise: 1, Fall: 2}
	r := newChainRig(t, as)
	r.run()
	is := func(state ServingState, detail string) {
		t.Helper()
		eventually(t, "state "+string(state), func() bool {
			s := r.serving(1)
			return s.State == state && s.Detail == detail
		})
	}
	is(ServingDown, "connection refused")
	if n, all := r.unsettled(); n != all || all == 0 {
		t.Errorf("down: %d of %d entries are unsettled", n, all)
	}
	l := r.listenOn("10.99.99.99:80")
	is(ServingUp, "")
	// Its own checks are no connections of clients.
	if s := r.serving(1); s.Connections != 0 {
		t.Errorf("%d connections, none was made", s.Connections)
	}
	if n, all := r.unsettled(); n != all {
		t.Errorf("up a moment ago: %d of %d entries are unsettled", n, all)
	}
	eventually(t, "settled", func() bool { n, _ := r.unsettled(); return n == 0 })
	l.Close()
	is(ServingDown, "connection refused")
	eventually(t, "unsettled again", func() bool { n, all := r.unsettled(); return n == all })

	as.Version++
	as.VIPs[0].Slots[1].State = controller.Draining
	if err := r.agent.Apply(as); err != nil {
		t.Fatal(err)
	}
	is(ServingDisabled, "takes no new connections, by the assignment")
}

// Without a check of the VIP's own, somebody has to listen.
func TestServingStateByListener(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Faild))
	is := func(vip uint32, state ServingState, detail string) {
		t.Helper()
		eventually(t, fmt.Sprintf("VIP %d is %s", vip, state), func() bool {
			s := r.serving(vip)
			return s.State == state && s.Detail == detail
		})
	}
	is(1, ServingDown, "nobody listens on port 80")
	is(4, ServingDown, "nobody listens on port 80")
	l := r.listenOn(":80") // both families
	is(1, ServingUp, "")
	is(3, ServingUp, "")
	l.Close()
	is(3, ServingDown, "nobody listens on port 80")
	err := r.Server.Do(func() error {
		c, err := net.ListenPacket("udp", "10.99.99.99:80")
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	is(2, ServingUp, "")
	is(4, ServingDown, "nobody listens on port 80")
}

// A count is shared by all who ask soon after it, and buckets of another table
// are counted anew.
func TestServingIsShared(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Beamer))
	first := r.serving(1).At
	asked := 1
	for r.serving(1).At.Equal(first) {
		asked++
	}
	if age := time.Since(first); age < countRest {
		t.Errorf("a count was made %v after another", age)
	}
	if asked < 2 {
		t.Error("every question made a count")
	}
	next := *r.as
	next.Version++
	table := next.VIPs[0].Buckets.Clone()
	table.Generation++
	next.VIPs[0].Buckets = table
	if err := r.agent.Apply(&next); err != nil {
		t.Fatal(err)
	}
	if s := r.serving(1); s.Generation != 2 {
		t.Errorf("generation %d, want 2", s.Generation)
	}
}

// BenchmarkTally is a count over many connections.
func BenchmarkTally(b *testing.B) {
	p, err := tables.Host(chainAssignment(choices.Beamer), "s")
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	var sockets []socket
	for range 100_000 {
		sockets = append(sockets, socket{netip.AddrPortFrom(hosttest.VIP4, 80),
			netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(r.Uint32()), byte(r.Uint32())}), uint16(r.Uint32())|1), tcpEstablished})
	}
	for b.Loop() {
		tally := newTally(p.Chains, time.Now())
		for _, s := range sockets {
			tally.tcp(s)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/socket")
}

// Flows that come and go in a full table do not keep the server from being
// counted; and where the kernel cannot be asked it is told all the same that it
// serves, with the last count.
func TestServingBusy(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Beamer))
	eventually(t, "it is down", func() bool { return r.serving(2).State == ServingDown })
	flow := func(i uint32) bpf.Tuple {
		return bpf.Tuple{Addr: [2]uint64{0, uint64(i)<<32 | 0xffff_0000}, Sport: uint16(i), Dport: bits.ReverseBytes16(80), VipId: 2}
	}
	n := r.agent.set.HostFlows.MaxEntries()
	keys, seen := make([]bpf.Tuple, n/2), make([]uint32, n/2)
	for i := range keys {
		keys[i], seen[i] = flow(uint32(i)), r.agent.SharedNow()
	}
	put := func(from uint32) error {
		for i := range keys {
			keys[i] = flow(from + uint32(i))
		}
		_, err := r.agent.set.HostFlows.BatchUpdate(keys, seen, nil)
		return err
	}
	if err := put(0); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := uint32(1); ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := put(i * n); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 5 {
		n := 0
		if err := r.agent.eachFlow(func(uint32, netip.AddrPort, uint16) { n++ }); err != nil || n == 0 {
			t.Fatalf("%d flows: %v", n, err)
		}
	}
	full := time.Now()
	eventually(t, "it is counted with these", func() bool { return r.serving(2).At.After(full) })
	if s := r.serving(2); s.Connections == 0 || len(s.owns()) != s.Buckets {
		t.Errorf("%d connections in %d buckets", s.Connections, len(s.owns()))
	}
	if w := r.agent.Status().Warnings; slices.ContainsFunc(w, uncounted) {
		t.Errorf("warnings %q", w)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	last := r.serving(2)
	r.agent.set.HostFlows.Close() // as if the kernel refused
	r.agent.counts.mu.Lock()
	r.agent.counts.ended = time.Time{}
	r.agent.counts.mu.Unlock()
	last.At = r.serving(2).At
	if w := r.agent.Status().Warnings; !slices.ContainsFunc(w, uncounted) {
		t.Errorf("warnings %q", w)
	}
	if s := r.serving(2); s.State != last.State || s.At.After(time.Now()) || s.At.IsZero() || s.Connections == 0 {
		t.Errorf("%+v, before %+v", s, last)
	}
	// Of a table that was never counted nothing is said but the state.
	r.as.VIPs[1].Buckets = buckets.New(50, []buckets.Server{{Number: 3, Weight: 1}, {Number: 5, Weight: 1}})
	r.as.Version++
	if err := r.agent.Apply(r.as); err != nil {
		t.Fatal(err)
	}
	if s := r.serving(2); !s.At.IsZero() || s.Buckets != 0 || s.Owned != nil || s.State != last.State {
		t.Errorf("%+v", s)
	}
}

func uncounted(warning string) bool { return strings.Contains(warning, "cannot be counted") }

// An agent that starts while its service is down never says that it is up.
func TestServingUnknown(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, chainAssignment(choices.Faild))
	eventually(t, "it is down", func() bool {
		s := r.serving(1)
		if s.State == ServingUp {
			t.Fatal("up, with nobody there")
		}
		return s.State == ServingDown
	})
}
