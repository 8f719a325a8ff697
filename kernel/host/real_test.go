package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/scheme/cheetah"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// A rig with an agent on its server, and a watch on the wire that decodes
// every timestamp the server sends.
type rig struct {
	*hosttest.Rig
	t     *testing.T
	agent *Agent
	pin   string
	now   func() uint32 // the shared clock, off by what the test wants
	as    *controller.Assignment
	port  uint16 // of the VIPs: 80, or 0 for all
	watch watch
	// unguarded: the agent holds no attacker off.
	unguarded bool
}

// watch collects what the client's end of the wire saw.
type watch struct {
	sync.Mutex
	stamped, synacks, keepalives, rsts int
	wrong                              []string
	last                               map[netip.AddrPort]uint32 // wire TSval by client
	epochs                             map[netip.AddrPort]uint32
	echoes                             map[netip.AddrPort]uint32
	fins                               map[netip.AddrPort]bool
	mss                                uint16
	unstamped                          int
}

func secret(epoch uint32) []byte {
	s := sha256.Sum256(binary.BigEndian.AppendUint32([]byte("test"), epoch))
	return s[:]
}

// assignment has one TCP VIP of each family on port 80.
func assignment(forwarding choices.Forwarding, tunnel4, tunnel6 netip.Addr, bits int) *controller.Assignment {
	as := &controller.Assignment{Version: 1, Keys: []controller.Key{{Epoch: 0, Secret: secret(0)}}}
	for i, a := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
		as.VIPs = append(as.VIPs, controller.VIP{
			ID:       uint32(i + 1),
			Settings: choices.Settings{Name: fmt.Sprintf("v%d", i), Address: a, Port: 80, Protocol: choices.TCP, Scheme: choices.Cheetah, Policy: "rr", Forwarding: forwarding, CookieBits: bits, MSSClamp: true},
			Slots: []controller.Slot{
				{Number: 3, Server: "other", Address: hosttest.Client4, State: controller.Active},
				{Number: 5, Server: "s", Address: []netip.Addr{tunnel4, tunnel6}[i], State: controller.Active},
			},
		})
	}
	return as
}

func newRig(t *testing.T, timestamps string, as *controller.Assignment) *rig {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	base, err := hosttest.New()
	must(err)
	r := &rig{Rig: base, t: t, as: as, port: 80}
	r.pin = kernel.Dir(fmt.Sprintf("host-%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid()))
	must(kernel.Ensure(kernel.Root))
	t.Cleanup(func() {
		if r.agent != nil {
			r.agent.Close()
		}
		if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
			t.Error(err)
		}
		r.Close()
	})
	for name, v := range map[string]string{"net.ipv4.tcp_timestamps": timestamps, "net.ipv4.tcp_syncookies": "0"} {
		must(r.Server.Sysctl(name, v))
	}
	// A clock that has nothing to do with any other.
	r.now = func() uint32 { return uint32(kernel.MonotonicMS()) + 0xfff12345 }
	r.open()
	r.watch = watch{last: map[netip.AddrPort]uint32{}, epochs: map[netip.AddrPort]uint32{}, echoes: map[netip.AddrPort]uint32{}, fins: map[netip.AddrPort]bool{}}
	c, err := r.Client.Listen(hosttest.ClientInterface, r.see)
	must(err)
	t.Cleanup(c.Close)
	return r
}

// open starts an agent, which adopts what the one before left.
func (r *rig) open() {
	r.t.Helper()
	err := r.Server.Do(func() (err error) {
		r.agent, err = Open(r.options(), slog.New(slog.DiscardHandler))
		return err
	})
	if err == nil {
		err = r.agent.SetClock(r.now)
	}
	if err == nil {
		err = r.agent.Apply(r.as)
	}
	if err != nil {
		r.t.Fatalf("%+v", err)
	}
}

func (r *rig) options() Options {
	return Options{Name: "s", PinDir: r.pin, Interfaces: []string{hosttest.ServerInterface}, Unguarded: r.unguarded}
}

// see checks what the server sends: each timestamp names slot 5 under a key
// that is known, and never goes back within a connection.
func (r *rig) see(p *wire.Parsed, leaves bool) {
	w := &r.watch
	w.Lock()
	defer w.Unlock()
	if leaves || p.Protocol != wire.ProtoTCP || p.Src != hosttest.VIP4 && p.Src != hosttest.VIP6 {
		if ts := p.Timestamp; leaves && ts != nil && p.Protocol == wire.ProtoTCP {
			w.echoes[p.Source()] = ts.Ecr
		}
		return
	}
	client := p.Destination()
	if p.Is(wire.RST) {
		w.rsts++
	}
	if p.Timestamp == nil {
		w.unstamped++
		return
	}
	if len(p.Payload) == 1 && p.Payload[0] == 0 && p.Flags == wire.ACK {
		w.keepalives++
	}
	if p.Is(wire.FIN) {
		w.fins[client] = true
	}
	val := p.Timestamp.Val
	layout := cheetah.Layout{Bits: r.as.VIPs[0].CookieBits}
	// What a balancer does with the echo of this, here with no delay.
	field := layout.Field(val, r.agent.SharedNow())
	found := false
	for epoch := range uint32(4) {
		key := cheetah.VIPKey(secret(epoch), p.Src, r.port, wire.ProtoTCP)
		if layout.Epoch(field) == epoch&1 && layout.Value(hash.Tuple(key, client, 80), field) == 5 {
			if p.Is(wire.SYN) || !found {
				w.epochs[client] = epoch
			}
			found = true
			break
		}
	}
	if !found && len(w.wrong) < 10 {
		w.wrong = append(w.wrong, fmt.Sprintf("%v flags %#x TSval %#x names another slot (now %#x)", client, p.Flags, val, r.agent.SharedNow()))
	}
	// Packets of two CPUs are captured in either order, so a few ms back are
	// no step back; a wrong constant is off by 2^17 ms or a random offset.
	if last, ok := w.last[client]; ok && int32(val-last) < -reordering && !p.Is(wire.SYN) && len(w.wrong) < 10 {
		w.wrong = append(w.wrong, fmt.Sprintf("%v flags %#x TSval %#x after %#x", client, p.Flags, val, last))
	}
	w.last[client] = val
	w.stamped++
	if p.Is(wire.SYN) {
		w.synacks++
		if len(p.Options) > 4 && p.Options[0] == wire.OptionMSS {
			w.mss = binary.BigEndian.Uint16(p.Options[2:])
		}
	}
}

// quiet are counters of the kernel that must not move while all is well.
var quiet = []string{"TcpExt.PAWSActive", "TcpExt.PAWSEstab", "TcpExt.TSEcrRejected", "Tcp.InCsumErrors", "TcpExt.TCPChallengeACK", "Tcp.AttemptFails"}

// during runs f and fails where one of the quiet counters moved on either
// side.
func (r *rig) during(f func()) {
	r.t.Helper()
	read := func() (c [2]map[string]int64) {
		for i, n := range []*hosttest.Namespace{r.Client, r.Server} {
			m, err := n.Counters()
			if err != nil {
				r.t.Fatal(err)
			}
			c[i] = m
		}
		return c
	}
	before := read()
	f()
	after := read()
	for i, side := range []string{"client", "server"} {
		for _, name := range quiet {
			if d := after[i][name] - before[i][name]; d != 0 {
				r.t.Errorf("%s: %s rose by %d", side, name, d)
			}
		}
	}
	// The capture may be behind what it captures.
	eventually(r.t, "a stamped packet is seen", func() bool {
		r.watch.Lock()
		defer r.watch.Unlock()
		return r.watch.stamped > 0
	})
	r.watch.Lock()
	defer r.watch.Unlock()
	for _, w := range r.watch.wrong {
		r.t.Error(w)
	}
	if r.t.Failed() {
		c, _ := r.agent.Counters()
		r.t.Logf("%+v", c)
	}
}

// listen starts an echo server on the VIP. Go's listeners are MPTCP ones.
func (r *rig) listen(vip netip.Addr) {
	r.t.Helper()
	var l net.Listener
	err := r.Server.Do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(vip, 80).String())
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
	go serve(l)
}

// serve sends back what comes.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

func (r *rig) dial(vip netip.Addr) net.Conn {
	r.t.Helper()
	var c net.Conn
	err := r.Client.Do(func() (err error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		c, err = d.Dial("tcp", netip.AddrPortFrom(vip, 80).String())
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// echo sends n bytes and wants them back.
func (r *rig) echo(c net.Conn, n int) {
	r.t.Helper()
	sent := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
	go c.Write(sent)
	got := make([]byte, n)
	c.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.ReadFull(c, got); err != nil {
		r.t.Fatalf("%v: %v", c.LocalAddr(), err)
	}
	if !bytes.Equal(sent, got) {
		r.t.Fatalf("%v: other bytes came back", c.LocalAddr())
	}
}

// reordering bounds how long, in ms, a busy machine holds a packet between its
// stamp and its capture. The clock's base has steps of 64.
const reordering = 60

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	type way struct {
		name       string
		forwarding choices.Forwarding
		outer      wire.Outer
	}
	ways := []way{{"l2", choices.L2, wire.Outer{}}}
	for _, over := range wire.Tunnels() {
		ways = append(ways,
			way{string(over) + "4", choices.Forwarding(over), wire.Outer{Tunnel: over, Src: hosttest.Client4, Dst: hosttest.Server4, SrcPort: 50000}},
			way{string(over) + "6", choices.Forwarding(over), wire.Outer{Tunnel: over, Src: hosttest.Client6, Dst: hosttest.Server6, SrcPort: 50000}})
	}
	for _, c := range ways {
		for _, timestamps := range []string{"1", "2"} {
			for _, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
				family := 4
				if vip.Is6() {
					family = 6
				}
				t.Run(fmt.Sprintf("%s-vip%d-timestamps%s", c.name, family, timestamps), func(t *testing.T) {
					tunnel := c.outer.Dst
					if !tunnel.IsValid() {
						tunnel = hosttest.Server4
					}
					r := newRig(t, timestamps, assignment(c.forwarding, tunnel, tunnel, 12))
					if err := r.Tunnel(vip, c.outer); err != nil {
						t.Fatal(err)
					}
					r.listen(vip)
					r.during(func() {
						var conns []net.Conn
						for range 10 {
							conn := r.dial(vip)
							r.echo(conn, 10000)
							conns = append(conns, conn)
						}
						r.echo(conns[0], 8<<20)
						for _, conn := range conns {
							conn.Close()
						}
					})
					want := timestamps == "1"
					if got := r.agent.Status().Lookup; got != want {
						t.Errorf("sockets are looked up: %v, want %v", got, want)
					}
				})
			}
		}
	}
}
