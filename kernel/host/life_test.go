package host

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

var bothSysctls = []string{"1", "2"}

func eachSysctl(t *testing.T, bits int, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, timestamps := range bothSysctls {
		t.Run("timestamps"+timestamps, func(t *testing.T) {
			r := newRig(t, timestamps, assignment(choices.IPIP, hosttest.Server4, hosttest.Server4, bits))
			for _, vip := range []netip.Addr{hosttest.VIP4} {
				if err := r.Tunnel(vip, wire.Outer{Tunnel: wire.IPIP, Src: hosttest.Client4, Dst: hosttest.Server4}); err != nil {
					t.Fatal(err)
				}
				r.listen(vip)
			}
			f(t, r)
		})
	}
}

func (r *rig) live(vip uint32) Live {
	r.t.Helper()
	l, err := r.agent.Live()
	if err != nil {
		r.t.Fatal(err)
	}
	return l[vip]
}

func (r *rig) reason(name string) uint64 {
	r.t.Helper()
	c, err := r.agent.Counters()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range c.Reasons {
		if n.Name == name {
			return n.Packets
		}
	}
	r.t.Fatalf("no reason %s", name)
	return 0
}

// rotated is an assignment that decodes keys and stamps epoch stamp.
func rotated(as *controller.Assignment, stamp uint32, keys ...uint32) *controller.Assignment {
	next := *as
	next.Version++
	next.Keys = nil
	for _, k := range keys {
		next.Keys = append(next.Keys, controller.Key{Epoch: k, Secret: secret(k)})
	}
	next.StampEpoch = stamp
	return &next
}

// A key rotates while connections live, are opened and are half open.
func TestRotation(t *testing.T) {
	t.Parallel()
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		r.during(func() {
			apply := func(as *controller.Assignment) {
				t.Helper()
				if err := r.agent.Apply(as); err != nil {
					t.Fatal(err)
				}
				r.as = as
			}
			old := r.dial(hosttest.VIP4)
			r.echo(old, 1000)
			apply(rotated(r.as, 0, 0, 1))

			// Connections are opened all the time while the epoch changes.
			stop, done := make(chan bool), make(chan error, 1)
			go func() {
				var conns []net.Conn
				defer func() {
					for _, c := range conns {
						c.Close()
					}
				}()
				for {
					select {
					case <-stop:
						done <- nil
						return
					default:
					}
					var c net.Conn
					err := r.Client.Do(func() (err error) {
						c, err = net.DialTimeout("tcp", netip.AddrPortFrom(hosttest.VIP4, 80).String(), 5*time.Second)
						return err
					})
					if err != nil {
						done <- err
						return
					}
					conns = append(conns, c)
					c.SetDeadline(time.Now().Add(5 * time.Second))
					if _, err = c.Write([]byte("hello")); err == nil {
						_, err = c.Read(make([]byte, 5))
					}
					if err != nil {
						done <- err
						return
					}
				}
			}()
			before := r.live(1).Epochs[0]
			eventually(t, "connections under epoch 0", func() bool { return r.live(1).Epochs[0] > before+5 })
			apply(rotated(r.as, 1, 0, 1))
			eventually(t, "connections under epoch 1", func() bool {
				if len(done) > 0 {
					t.Fatalf("a connection that was opened meanwhile: %v; live %v", <-done, r.live(1))
				}
				return r.live(1).Epochs[1] > 20
			})
			close(stop)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			r.echo(old, 1000)
			eventually(t, "epoch 1 has no connections", func() bool { return r.live(1).Epochs[1] == 0 })
			// The server closes in an order of its own: the old epoch's may be last.
			eventually(t, "only the first connection under epoch 0", func() bool { return r.live(1).Epochs[0] == 1 })
			old.Close()
			eventually(t, "epoch 0 has no connections", func() bool { return r.live(1).Epochs[0] == 0 })
			// The next rotation takes the first one's parity.
			apply(rotated(r.as, 1, 1, 2))
			apply(rotated(r.as, 2, 1, 2))
			c := r.dial(hosttest.VIP4)
			r.echo(c, 1000)
			if n := r.live(1).Epochs[2]; n != 1 {
				t.Errorf("%d live under epoch 2, want 1", n)
			}
		})
	})
}

// A TIME_WAIT socket answers a repeated FIN, also after a rotation, under the
// epoch that its client knows.
func TestTimeWaitAnswers(t *testing.T) {
	t.Parallel()
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		r.during(func() {
			apply := func(as *controller.Assignment) {
				t.Helper()
				if err := r.agent.Apply(as); err != nil {
					t.Fatal(err)
				}
				r.as = as
			}
			apply(rotated(r.as, 0, 0, 1))
			// The server closes first: it keeps the TIME_WAIT socket.
			var l net.Listener
			err := r.Server.Do(func() (err error) {
				l, err = net.Listen("tcp6", netip.AddrPortFrom(hosttest.VIP6, 80).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			var fin []byte
			k, err := r.Client.Listen(hosttest.ClientInterface, func(p *wire.Parsed, leaves bool) {
				if leaves && p.Protocol == wire.ProtoTCP && p.Is(wire.FIN) {
					r.watch.Lock()
					// Made anew: the checksum of what leaves is not finished.
					again := wire.TCP{Src: p.Source(), Dst: p.Destination(), Flags: p.Flags, Seq: p.Seq, Ack: p.Ack,
						Options: slices.Clone(p.Options), Window: 500}
					fin = append(slices.Clone(p.Frame[:14]), again.Packet()...)
					r.watch.Unlock()
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			c := r.dial(hosttest.VIP6)
			a, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			a.Close()
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			c.Read(make([]byte, 1))
			c.Close()
			lastFIN := func() []byte {
				r.watch.Lock()
				defer r.watch.Unlock()
				return fin
			}
			eventually(t, "the client's FIN", func() bool { return lastFIN() != nil })
			eventually(t, "the connection is closed", func() bool { return r.live(2).Epochs[0] == 0 })
			apply(rotated(r.as, 1, 0, 1))

			again := lastFIN()
			seen := make(chan *wire.Parsed, 16)
			answers, err := r.Client.Listen(hosttest.ClientInterface, func(p *wire.Parsed, leaves bool) {
				if !leaves && p.Protocol == wire.ProtoTCP && p.Src == hosttest.VIP6 {
					select {
					case seen <- wire.Parse(slices.Clone(p.Frame)):
					default:
					}
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer answers.Close()
			if err := r.Client.Send(hosttest.ClientInterface, again); err != nil {
				t.Fatal(err)
			}
			select {
			case p := <-seen:
				if p.Timestamp == nil || !p.Is(wire.ACK) || p.Is(wire.RST) {
					t.Fatalf("answer: flags %#x, timestamp %v", p.Flags, p.Timestamp)
				}
				r.watch.Lock()
				before := r.watch.last[p.Destination()]
				r.watch.Unlock()
				if d := int32(p.Timestamp.Val - before); d < -2 || d > 20000 {
					t.Errorf("answer's TSval %#x, %d ms after the connection's last", p.Timestamp.Val, d)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("no answer to the repeated FIN")
			}
			if r.reason("in_old_epoch") == 0 || r.reason("out_stamped_lookup") == 0 {
				t.Error("the answer was not stamped by looking up the TIME_WAIT socket and its epoch")
			}
		})
	})
}

// With SYN cookies nothing knows the connection between SYN-ACK and its
// answer; options and stamping survive it all the same.
func TestSYNCookies(t *testing.T) {
	t.Parallel()
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		if err := r.Server.Sysctl("net.ipv4.tcp_syncookies", "2"); err != nil { // always
			t.Fatal(err)
		}
		r.during(func() {
			for range 20 {
				c := r.dial(hosttest.VIP4)
				r.echo(c, 20000)
				// Window scaling and SACK came through in TSval's low bits.
				raw, err := c.(*net.TCPConn).SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				var info *unix.TCPInfo
				raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
				if err != nil {
					t.Fatal(err)
				}
				const want = 1 | 2 | 4 // timestamps, SACK, window scaling
				if info.Options&want != want {
					t.Errorf("options %#x, want %#x", info.Options, want)
				}
				c.Close()
			}
		})
		if n := r.reason("out_stamped_syncookie"); n < 20 {
			t.Errorf("%d SYN-ACKs were stamped as SYN cookies'; 20 were sent", n)
		}
		c, err := r.Server.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if c["TcpExt.SyncookiesRecv"] < 20 || c["TcpExt.SyncookiesFailed"] != 0 {
			t.Errorf("SYN cookies received %d, failed %d", c["TcpExt.SyncookiesRecv"], c["TcpExt.SyncookiesFailed"])
		}
	})
}

// The look-ups begin with the first connection that needs one, before any
// watch on the sysctl could see that it changed.
func TestSysctlChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	r.listen(hosttest.VIP4)
	r.during(func() {
		old := r.dial(hosttest.VIP4)
		r.echo(old, 1000)
		if r.agent.Status().Lookup {
			t.Error("sockets are looked up although tcp_timestamps is 2")
		}
		if err := r.Server.Sysctl("net.ipv4.tcp_timestamps", "1"); err != nil {
			t.Fatal(err)
		}
		c := r.dial(hosttest.VIP4)
		r.echo(c, 1000)
		if !r.agent.Status().Lookup {
			t.Error("sockets are not looked up although tcp_timestamps is 1")
		}
		r.echo(old, 1000)
	})
	warnings := func(sysctl string) int {
		t.Helper()
		if err := r.Server.Sysctl("net.ipv4.tcp_timestamps", sysctl); err != nil {
			t.Fatal(err)
		}
		if err := r.agent.watchTimestamps(); err != nil {
			t.Fatal(err)
		}
		return len(r.agent.Status().Warnings)
	}
	if off, on := warnings("0"), warnings("1"); off != 1 || on != 0 {
		t.Errorf("%d warnings with timestamps off, %d with them on; want 1 and 0", off, on)
	}
}

// A SYN-ACK that is repeated is stamped like the first. The client's answer
// is held back by a filter until the server has repeated itself.
func TestSYNACKRetransmit(t *testing.T) {
	t.Parallel()
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		seen := map[uint32]int{}
		w, err := r.Client.Listen(hosttest.ClientInterface, func(p *wire.Parsed, leaves bool) {
			if !leaves && p.Protocol == wire.ProtoTCP && p.Is(wire.SYN|wire.ACK) && p.Timestamp != nil {
				r.watch.Lock()
				seen[p.Timestamp.Val]++
				r.watch.Unlock()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		// A SYN from an address that nobody has: nobody answers the SYN-ACK.
		ghost := netip.MustParseAddr("10.99.0.77")
		syn := wire.TCP{Src: netip.AddrPortFrom(ghost, 4321), Dst: netip.AddrPortFrom(hosttest.VIP4, 80), Flags: wire.SYN,
			Seq: 1, Options: wire.SYNOptions(1460, 1)}
		if err := r.Client.Neighbour(hosttest.ClientInterface, hosttest.Server4); err != nil {
			t.Fatal(err)
		}
		if err := r.Server.Neighbour(hosttest.ServerInterface, ghost); err != nil {
			t.Fatal(err)
		}
		frame, err := r.Client.Frame(hosttest.ClientInterface, r.Server, hosttest.ServerInterface, syn.Packet())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Client.Send(hosttest.ClientInterface, frame); err != nil {
			t.Fatal(err)
		}
		r.during(func() {
			eventually(t, "a second SYN-ACK", func() bool {
				r.watch.Lock()
				defer r.watch.Unlock()
				return len(seen) >= 2
			})
		})
		if n := r.reason("out_stamped_lookup"); n < 2 {
			t.Errorf("%d SYN-ACKs were stamped by looking up the request", n)
		}
	})
}
