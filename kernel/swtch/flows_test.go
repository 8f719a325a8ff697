package swtch

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/wire"
)

// flows sends one datagram of each of many flows (a source port and family
// each), and says at which server each came out, by what the servers' cards
// saw. They go through the kernel's real ECMP.
type flows struct {
	n     *network
	flows []flow
	mu    sync.Mutex
	at    map[string]int // flow: server
	seen  int
}

type flow struct {
	from *net.UDPConn
	to   netip.AddrPort
}

func (f flow) write() error {
	_, err := f.from.WriteToUDPAddrPort([]byte("fairlead"), f.to)
	return err
}

const firstPort = 20000

func newFlows(n *network, count int) *flows {
	n.t.Helper()
	f := &flows{n: n, at: map[string]int{}}
	must(n.t, n.client.Do(func() error {
		for i := range count {
			for _, pair := range [][2]netip.Addr{{netip.MustParseAddr("10.1.0.1"), vip4}, {netip.MustParseAddr("2001:db8:1::1"), vip6}} {
				// Not connected, so that no ICMP error spoils a later write.
				c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(pair[0], uint16(firstPort+i))))
				if err != nil {
					return err
				}
				f.flows = append(f.flows, flow{c, netip.AddrPortFrom(pair[1], 9)})
			}
		}
		return nil
	}))
	n.t.Cleanup(func() {
		for _, one := range f.flows {
			one.from.Close()
		}
	})
	for i, ns := range n.servers {
		f.listen(i, ns)
	}
	return f
}

// listen notes what comes to a server's card, whatever MAC it was sent to, as
// the agent's XDP program would see it: frames for others are left out.
func (f *flows) listen(server int, ns *hosttest.Namespace) {
	var fd int
	must(f.n.t, ns.Do(func() (err error) {
		const everything = 0x0300 // ETH_P_ALL in network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, everything); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20); err != nil {
			return err
		}
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything, Ifindex: link.Index})
	}))
	must(f.n.t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			select {
			case <-stop:
				return
			default:
			}
			length, from, err := unix.Recvfrom(fd, buffer, 0)
			if err != nil {
				continue
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			f.note(server, buffer[:length])
		}
	}()
	f.n.t.Cleanup(func() { close(stop); <-done; unix.Close(fd) })
}

func (f *flows) note(server int, frame []byte) {
	if len(frame) < wire.EthernetLen+28 {
		return
	}
	mac := wire.MAC(frame[:6])
	if to, ok, err := wire.DecodeFaild(mac); ok && err == nil && int(to.Current) != server {
		return // flooded
	}
	var name string
	switch ip := frame[wire.EthernetLen:]; {
	case ip[0]>>4 == 4 && ip[9] == wire.ProtoUDP:
		name = fmt.Sprintf("4/%d", binary.BigEndian.Uint16(ip[20:]))
	case ip[0]>>4 == 6 && len(ip) >= 48 && ip[6] == wire.ProtoUDP:
		name = fmt.Sprintf("6/%d", binary.BigEndian.Uint16(ip[40:]))
	default:
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[name] = server
	f.seen++
}

// send sends one datagram a flow and waits until all have come out.
func (f *flows) send() map[string]int {
	f.n.t.Helper()
	f.mu.Lock()
	f.at, f.seen = map[string]int{}, 0
	f.mu.Unlock()
	for _, one := range f.flows {
		must(f.n.t, one.write())
	}
	eventually(f.n.t, "all flows come out", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.at) == len(f.flows)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// warm sends until the kernel knows all neighbours: what it sends meanwhile
// may get lost, or to another.
func (f *flows) warm() {
	f.n.t.Helper()
	known := func() (count int) {
		text := f.n.run(f.n.sw, "ip neigh show dev br0")
		for i := range f.n.servers {
			for _, a := range []string{fmt.Sprintf("10.2.0.%d ", i+1), fmt.Sprintf("2001:db8:2::%x ", i+1)} {
				count += lines("\n"+text, a, "lladdr")
			}
		}
		return count
	}
	eventually(f.n.t, "the servers' neighbours are known", func() bool {
		for _, one := range f.flows {
			must(f.n.t, one.write())
		}
		return known() >= 2*len(f.n.servers)
	})
}

// movedFrom is how many flows were at the server, and how many others moved.
func movedFrom(before, after map[string]int, server int) (at, others int) {
	for name, was := range before {
		switch {
		case was == server:
			at++
		case after[name] != was:
			others++
		}
	}
	return at, others
}

// Faild section 3.1: "only traffic destined to hosts in a removal host set ...
// being affected", which neither plain ECMP nor a resilient group gives.
func TestFlowsOfOthersStay(t *testing.T) {
	const servers, count = 8, 600 // 1,200 flows, of two families
	n := newNetwork(t, servers)
	c := &clock{time.Unix(1_800_000_000, 0)}
	s := n.open(Options{Ports: n.ports(), Now: c.Now})
	d := desired(256, servers)
	must(t, s.Apply(d))
	must(t, s.Health(all(servers, nil)))
	f := newFlows(n, count)
	first := f.send()
	if again := f.send(); len(again) != 2*count {
		t.Fatal("flows are lost")
	} else if _, moved := movedFrom(first, again, -1); moved != 0 {
		t.Fatalf("%d flows moved though nothing changed", moved)
	}
	load := make([]int, servers)
	for _, at := range first {
		load[at]++
	}
	if slices.Min(load) < count/servers {
		t.Errorf("flows a server: %d", load)
	}

	// The model of the kernel's hash says of each flow where it came out.
	for name, at := range first {
		var port uint16
		fmt.Sscanf(name[2:], "%d", &port)
		client, vip := netip.MustParseAddr("10.1.0.1"), vip4
		if name[0] == '6' {
			client, vip = netip.MustParseAddr("2001:db8:1::1"), vip6
		}
		b := wire.FaildBucket(d.Seed, netip.AddrPortFrom(client, port), netip.AddrPortFrom(vip, 9), wire.ProtoUDP, d.Table.Len())
		if int(d.Table.Current[b]) != at {
			t.Fatalf("flow %s came out at server %d, but bucket %d is server %d's", name, at, b, d.Table.Current[b])
		}
	}

	c.add(time.Second)
	drained := weigh(d, 3, 0, c.now)
	must(t, s.Apply(drained))
	after := f.send()
	at, moved := movedFrom(first, after, 3)
	t.Logf("drained 1 of %d servers: %d of its flows go to others and from there to it; of the other %d flows %d moved", servers, at, len(first)-at, moved)
	if moved != 0 || at == 0 {
		t.Errorf("%d flows of other servers moved", moved)
	}
	for _, to := range after {
		if to == 3 {
			t.Fatal("the drained server still takes flows")
		}
	}
	// A host that still forwards drained traffic is drained in turn: its MACs
	// name both.
	c.add(time.Second)
	must(t, s.Apply(weigh(drained, 5, 0, c.now)))
	twice := f.send()
	if _, moved := movedFrom(after, twice, 5); moved != 0 {
		t.Errorf("the second drain moved %d flows of others", moved)
	}
	for b := range s.rows.Len() {
		row := s.rows.At(b)
		if owner := d.Table.Current[b]; owner != row.Current && !slices.Contains(row.Previous[:], owner) {
			t.Fatalf("bucket %d: its first server %d is neither current nor in the chain %v", b, owner, row)
		}
	}

	// The same with what a router does.
	must(t, s.Remove())
	// Hosts answer ARP for real gateways, by servers' own addresses.
	for _, other := range []struct {
		name    string
		buckets int
	}{{"plain ECMP group", 0}, {"resilient group", 1024}} {
		name, resilient := other.name, other.buckets
		var gateways4, gateways6 []netip.Addr
		for i := range servers {
			gateways4 = append(gateways4, netip.AddrFrom4([4]byte{10, 2, 0, byte(i + 1)}))
			a := netip.MustParseAddr("2001:db8:2::").As16()
			a[15] = byte(i + 1)
			gateways6 = append(gateways6, netip.AddrFrom16(a))
		}
		must(t, n.sw.Do(func() error {
			if err := AddGroup(1000, netip.PrefixFrom(vip4, 32), "br0", gateways4, resilient); err != nil {
				return err
			}
			return AddGroup(2000, netip.PrefixFrom(vip6, 128), "br0", gateways6, resilient)
		}))
		f.warm()
		before := f.send()
		must(t, n.sw.Do(func() error {
			if err := RemoveMember(1000, gateways4[3]); err != nil {
				return err
			}
			return RemoveMember(2000, gateways6[3])
		}))
		after := f.send()
		at, moved := movedFrom(before, after, 3)
		t.Logf("%s: of the %d flows of other servers %d moved", name, len(before)-at, moved)
		if resilient == 0 && moved == 0 {
			t.Errorf("%s moved nothing: the comparison compares nothing", name)
		}
		n.run(n.sw, "for g in 1000 2000; do for i in 0 1 2 3 4 5 6 7 8; do ip nexthop del id $((g + i)) || true; done; done 2>/dev/null")
	}
}

func TestRepointTime(t *testing.T) {
	n := newNetwork(t, 0)
	var took []time.Duration
	must(t, n.sw.Do(func() (err error) {
		took, err = MeasureRepoint("br0", 1024, 50)
		return err
	}))
	slices.Sort(took)
	t.Logf("1,024 nexthops repointed: p50 %v, p95 %v, best %v", percentile(took, 50), percentile(took, 95), took[0])
	if text := n.run(n.sw, "ip neigh show dev br0 nud permanent"); text != "" {
		t.Errorf("left behind: %s", text)
	}
}
