package host

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/tables"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

func mptcpAssignment() *controller.Assignment {
	as := chainAssignment(choices.Beamer)
	for i := range as.VIPs {
		as.VIPs[i].MPTCP = as.VIPs[i].Protocol == choices.TCP
	}
	return as
}

// inMPTCP runs f with the path manager of a namespace, or skips the test.
func inMPTCP(t *testing.T, n *hosttest.Namespace, f func(p *pathManager) error) {
	t.Helper()
	err := n.Do(func() error {
		p, err := openPathManager()
		if err != nil {
			return err
		}
		defer p.close()
		return f(p)
	})
	if err == errNoMPTCP {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// kernelJoins is the server's endpoints and its limit of subflows.
func (r *rig) kernelJoins() (at []netip.AddrPort, subflows uint32) {
	r.t.Helper()
	inMPTCP(r.t, r.Server, func(p *pathManager) error {
		list, err := p.endpoints()
		for _, e := range list {
			at = append(at, e.at)
		}
		if err == nil {
			_, subflows, err = p.limits()
		}
		return err
	})
	slices.SortFunc(at, netip.AddrPort.Compare)
	return at, subflows
}

func (r *rig) sysctl(file string) (value byte) {
	r.t.Helper()
	err := r.Server.Do(func() error {
		b, err := os.ReadFile(file)
		if err == nil {
			value = b[0]
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return value
}

// Endpoints come and go with the VIPs, and with them what else was set; those
// of others stay. A killed agent's successor removes what that one made.
func TestJoinsFollowTheAssignment(t *testing.T) {
	t.Parallel()
	all := mptcpAssignment()
	none := chainAssignment(choices.Beamer)
	none.Version = all.Version + 1
	r := newChainRig(t, none)
	foreign := netip.AddrPortFrom(hosttest.Server4, 0)
	inMPTCP(t, r.Server, func(p *pathManager) error { return p.add(foreign) })
	at, subflows := r.kernelJoins()
	if !slices.Equal(at, []netip.AddrPort{foreign}) {
		t.Fatalf("endpoints %v at first", at)
	}
	want := []netip.AddrPort{foreign}
	for _, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
		want = append(want, netip.AddrPortFrom(vip, tables.JoinPort(all.HashKey, netip.AddrPortFrom(vip, 80), 5)))
	}
	slices.SortFunc(want, netip.AddrPort.Compare)
	is := func(there bool) {
		t.Helper()
		at, limit := r.kernelJoins()
		initial := r.sysctl(mptcpInitial)
		if there && (!slices.Equal(at, want) || limit != pmMaxSubflows || initial != '0') {
			t.Errorf("endpoints %v, want %v; %d subflows; joins to the initial address: %c", at, want, limit, initial)
		}
		if !there && (!slices.Equal(at, []netip.AddrPort{foreign}) || limit != subflows || initial != '1') {
			t.Errorf("endpoints %v; %d subflows, want %d as before; joins to the initial address: %c", at, limit, subflows, initial)
		}
	}
	apply := func(as *controller.Assignment) {
		t.Helper()
		if err := r.agent.Apply(as); err != nil {
			t.Fatal(err)
		}
		want := 0 // but for what is wrong with IPv6's
		if slices.ContainsFunc(as.VIPs, func(v controller.VIP) bool { return v.MPTCP }) {
			want = 1
		}
		if w := r.agent.Status().Warnings; len(w) != want || want == 1 && w[0] != warnJoins6 {
			t.Errorf("warnings: %q", w)
		}
	}
	apply(all)
	is(true)
	apply(all)
	is(true)
	apply(none)
	is(false)
	apply(all)
	r.reopen(all)
	is(true)
	r.reopen(none)
	is(false)
	apply(all)
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	is(false)
	r.open()
}

// What somebody takes away is put back, and where there is no room it is said
// and nothing fails.
func TestJoinsAreKept(t *testing.T) {
	t.Parallel()
	r := newChainRig(t, mptcpAssignment())
	r.run()
	inMPTCP(t, r.Server, func(p *pathManager) error {
		list, err := p.endpoints()
		for _, e := range list {
			if err == nil {
				err = p.remove(e)
			}
		}
		return err
	})
	eventually(t, "the endpoints are there again", func() bool { at, _ := r.kernelJoins(); return len(at) == 2 })

	if err := r.agent.Apply(chainAssignment(choices.Beamer)); err != nil {
		t.Fatal(err)
	}
	inMPTCP(t, r.Server, func(p *pathManager) error { // a namespace has room for eight
		for i := range byte(8) {
			if err := p.add(netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, i + 1}), 0)); err != nil {
				return fmt.Errorf("endpoint %d: %w", i, err)
			}
		}
		return nil
	})
	as := mptcpAssignment()
	if err := r.agent.Apply(as); err != nil {
		t.Fatalf("an endpoint too many fails: %v", err)
	}
	if w := r.agent.Status().Warnings; len(w) != 2 || w[1] != warnJoins6 {
		t.Errorf("warnings: %q", w)
	}
}

// The port says nothing of the number: under one key numbers' ports look like
// random ones, and each names one number alone.
func TestJoinPortHidesTheNumber(t *testing.T) {
	t.Parallel()
	service := netip.AddrPortFrom(hosttest.VIP4, 80)
	const keys = 64
	steps := map[uint16]int{}
	for k := range uint64(keys) {
		key := hash.Key{k + 1, 3 * k}
		seen := map[uint16]bool{}
		for slot := range uint16(1 << 15) {
			port := tables.JoinPort(key, service, slot)
			if port < bpf.JoinPort || seen[port] {
				t.Fatalf("slot %d: port %d", slot, port)
			}
			seen[port] = true
		}
		for slot := range uint16(256) {
			steps[tables.JoinPort(key, service, slot+1)-tables.JoinPort(key, service, slot)]++
		}
	}
	// 16,384 steps over 65,535 values: one that comes often tells the next
	// number from a known one.
	for step, n := range steps {
		if n > 200 {
			t.Errorf("numbers that follow each other are %d ports apart %d times of %d", step, n, keys*256)
		}
	}
}

// A kernel's own client that is told of the join port adds a subflow there, and
// it lives at this server.
func TestMPTCPClientJoins(t *testing.T) {
	t.Parallel()
	for i, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
		t.Run(vip.String(), func(t *testing.T) {
			as := mptcpAssignment()
			as.VIPs[2-2*i].MPTCP = false // the other's endpoint would be joined, too
			r := newChainRig(t, as)
			if vip.Is6() { // see warnJoins6
				if err := r.Server.Sysctl("net.ipv4.tcp_timestamps", "0"); err != nil {
					t.Fatal(err)
				}
			}
			inMPTCP(t, r.Client, func(p *pathManager) error { return p.setLimits(2, 2) })
			r.listenOn(":80") // Go's listeners speak MPTCP
			seen := r.watchFrames(func(p *wire.Parsed) bool { return p.Protocol == wire.ProtoTCP && p.Is(wire.SYN|wire.ACK) })
			var c net.Conn
			err := r.Client.Do(func() (err error) {
				d := net.Dialer{}
				d.SetMultipathTCP(true)
				c, err = d.Dial("tcp", netip.AddrPortFrom(vip, 80).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r.echo(c, 10000)
			port := tables.JoinPort(r.as.HashKey, netip.AddrPortFrom(vip, 80), 5)
			id := uint32(2*i + 1)
			eventually(t, "the connection and its join are counted, in one bucket", func() bool {
				s := r.serving(id)
				return s.Connections == 2 && len(s.owns()) == 1
			})
			eventually(t, "a SYN-ACK from the join port", func() bool {
				return slices.ContainsFunc(seen(), func(f []byte) bool { return wire.Parse(f).Source() == netip.AddrPortFrom(vip, port) })
			})
			if n := subflows(t, c); n != 1 {
				t.Errorf("%d additional subflows, want 1", n)
			}
			r.echo(c, 1<<20)
		})
	}
}

// A port of joins answers no stranger, whatever he sends: it is like one that
// stands for no server.
func TestJoinPortsAnswerNoStranger(t *testing.T) {
	t.Parallel()
	probes := []wire.TCP{
		{Flags: wire.SYN, Options: wire.SYNOptions(1400, 7)},                                             // SYN
		{Flags: wire.SYN, Options: []byte{30, 4, 0x01, 0x01}},                                            // SYN, MP_CAPABLE
		{Flags: wire.SYN, Options: []byte{30, 12, 0x10, 2, 1, 2, 3, 4, 5, 6, 7, 8}},                      // SYN, unknown token
		{Flags: wire.ACK, Seq: 1, Ack: 1},                                                                // ACK
		{Flags: wire.ACK, Seq: 1, Ack: 1, Options: append([]byte{30, 24, 0x10, 0}, make([]byte, 20)...)}, // ACK, MP_JOIN
		{Flags: wire.ACK | wire.PSH, Seq: 1, Ack: 1, Payload: []byte("?")},                               // data
		{Flags: wire.ACK | wire.FIN, Seq: 1, Ack: 1},                                                     // FIN
		{Flags: wire.FIN}, // FIN alone
		{Flags: wire.SYN | wire.ACK, Seq: 1, Ack: 1}, // SYN-ACK
		{}, // nothing
		{Flags: wire.SYN, Options: []byte{30, 0, 0x10, 0}}, // SYN, broken options
	}
	r := newChainRig(t, mptcpAssignment())
	r.listenOn(":80")
	for _, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
		client := hosttest.Client4
		if vip.Is6() {
			client = hosttest.Client6
		}
		join := tables.JoinPort(r.as.HashKey, netip.AddrPortFrom(vip, 80), 5)
		answers := r.watchFrames(func(p *wire.Parsed) bool { return p.Protocol == wire.ProtoTCP && p.Source().Addr() == vip })
		from := uint16(20000)
		for _, probe := range probes {
			from++
			probe.Src = netip.AddrPortFrom(client, from)
			for _, port := range []uint16{join, 80} {
				probe.Dst = netip.AddrPortFrom(vip, port)
				r.sendFromClient(probe.Packet())
			}
		}
		answered := func(port uint16) (from []netip.AddrPort) {
			for _, f := range answers() {
				if p := wire.Parse(f); p.SrcPort == port {
					from = append(from, p.Destination())
				}
			}
			return from
		}
		eventually(t, "port 80 answers", func() bool { return len(answered(80)) >= 7 })
		if got := answered(join); len(got) > 0 {
			t.Errorf("%v port %d answers %d of %d probes: %v", vip, join, len(got), len(probes), got)
		}
	}
	if n := r.reason("drop_no_join"); n < 10 {
		t.Errorf("%d answers were counted as dropped", n)
	}
}

// subflows is how many a connection has beside its first (struct mptcp_info).
func subflows(t *testing.T, c net.Conn) uint8 {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const mptcpInfo = 1
	var info string
	raw.Control(func(fd uintptr) { info, err = unix.GetsockoptString(int(fd), unix.SOL_MPTCP, mptcpInfo) })
	if err != nil || len(info) < 1 {
		t.Fatalf("MPTCP_INFO: %d bytes, %v", len(info), err)
	}
	return info[0]
}
