package host

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/host/hosttest"
	"github.com/fairlead/fairlead/wire"
)

var bothSysctls = []string{"1", "2"}

func eachSysctl(t *testing.T, bits int, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, timestamps := range bothSysctls {
		t.Run("timestamps"+timestamps, func(t *testing.T) {
			r := newRig(t, timestamps, assignment(config.IPIP, hosttest.Server4, hosttest.Server4, bits))
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

// A killed or replaced agent changes nothing for connections.
func TestRestartAdopts(t *testing.T) {
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		r.during(func() {
			c := r.dial(hosttest.VIP4)
			r.echo(c, 1000)
			d, _ := r.agent.ClockBase()
			r.agent.Close()
			r.echo(c, 1000) // nobody there
			r.now = func() uint32 { return 12345 }
			r.open()
			if !r.agent.Status().Adopted {
				t.Error("nothing was adopted")
			}
			if got, _ := r.agent.ClockBase(); got != d {
				t.Errorf("clock base %#x, want %#x as pinned", got, d)
			}
			r.echo(c, 1000)
			if l := r.live(1); l.Epochs[0] != 1 || l.NoCookie != 0 {
				t.Errorf("live: %+v, want 1 under epoch 0", l)
			}
			c.Close()
			eventually(t, "no connection is live", func() bool { return r.live(1).Epochs[0] == 0 })
		})
	})
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

// §: a key rotates while connections live, are opened and are half open.
func TestRotation(t *testing.T) {
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
			eventually(t, "connections under epoch 1", func() bool { return r.live(1).Epochs[1] > 20 })
			close(stop)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			r.echo(old, 1000)
			eventually(t, "epoch 1 has no connections", func() bool { return r.live(1).Epochs[1] == 0 })
			if n := r.live(1).Epochs[0]; n != 1 {
				t.Errorf("%d live under epoch 0, want the first", n)
			}
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

// A connection that is silent is renewed: the agent's keepalives are set, and
// their answers echo a new timestamp.
func TestKeepaliveRenewsTheCookie(t *testing.T) {
	eachSysctl(t, 15, func(t *testing.T, r *rig) {
		r.during(func() {
			var accepted *net.TCPConn
			var l net.Listener
			err := r.Server.Do(func() (err error) {
				l, err = (&net.ListenConfig{KeepAlive: -1}).Listen(t.Context(), "tcp6", netip.AddrPortFrom(hosttest.VIP6, 80).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			c := r.dial(hosttest.VIP6)
			a, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			accepted = a.(*net.TCPConn)
			raw, err := accepted.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			get := func(level, name int) (v int) {
				raw.Control(func(fd uintptr) { v, err = unix.GetsockoptInt(int(fd), level, name) })
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			// 15 bits: 129 s idle limit.
			want := []int{1, 32, 8, 8}
			got := []int{get(unix.SOL_SOCKET, unix.SO_KEEPALIVE), get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE),
				get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)}
			multipath, _ := accepted.MultipathTCP()
			if !slices.Equal(got, want) {
				t.Errorf("keepalive, idle, interval, count: %v, want %v (multipath %v)", got, want, multipath)
			}
			raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 1)
				if err == nil {
					err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			client := c.LocalAddr().(*net.TCPAddr).AddrPort()
			echo := func() uint32 {
				r.watch.Lock()
				defer r.watch.Unlock()
				return r.watch.echoes[client]
			}
			eventually(t, "the handshake's echo", func() bool { return echo() != 0 })
			first := echo()
			eventually(t, "an echo two probes newer", func() bool { return int32(echo()-first) > 2000 })
			// The bytes of the probes reach no reader.
			go a.Write([]byte("x"))
			b := make([]byte, 10)
			c.SetReadDeadline(time.Now().Add(5 * time.Second))
			if n, err := c.Read(b); n != 1 || b[0] != 'x' {
				t.Errorf("read %q, %v; want x", b[:n], err)
			}
			if r.reason("out_keepalive") < 2 {
				t.Errorf("%d probes were given a byte", r.reason("out_keepalive"))
			}
		})
	})
}

// A TIME_WAIT socket answers a repeated FIN, also after a rotation, under the
// epoch that its client knows.
func TestTimeWaitAnswers(t *testing.T) {
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
	r := newRig(t, "2", assignment(config.L2, hosttest.Server4, hosttest.Server4, 12))
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
}

// A SYN-ACK that is repeated is stamped like the first. The client's answer
// is held back by a filter until the server has repeated itself.
func TestSYNACKRetransmit(t *testing.T) {
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

// The classic attachment, for kernels without tcx.
func TestClassicEgress(t *testing.T) {
	r := newRig(t, "1", assignment(config.L2, hosttest.Server4, hosttest.Server4, 12))
	err := r.Server.Do(func() error { return Unload(r.pin) })
	if err == nil {
		t.Error("unload while the agent runs must be refused")
	}
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	err = r.Server.Do(func() (err error) {
		r.agent, err = Open(Options{Name: "s", PinDir: r.pin, Interfaces: []string{hosttest.ServerInterface}, Classic: true}, r.agent.log)
		return err
	})
	if err == nil {
		err = r.agent.SetClock(r.now)
	}
	if err == nil {
		err = r.agent.Apply(r.as)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.listen(hosttest.VIP4)
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 100000) })
}

// An agent that cannot start leaves nothing behind, and says what to do.
func TestFailedOpenLeavesNothing(t *testing.T) {
	r := newRig(t, "2", assignment(config.L2, hosttest.Server4, hosttest.Server4, 12))
	pin := r.pin + "-failed"
	err := r.Server.Do(func() error {
		_, err := Open(Options{Name: "s", PinDir: pin, Interfaces: []string{"nosuch"}}, r.agent.log)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("error: %v", err)
	}
	if _, err := os.Stat(pin); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", pin, err)
	}
	// The folder of a living agent is refused, and left as it is.
	err = r.Server.Do(func() error {
		_, err := Open(Options{Name: "s", PinDir: r.pin, Interfaces: []string{hosttest.ServerInterface}}, r.agent.log)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error: %v", err)
	}
	r.listen(hosttest.VIP4)
	r.during(func() { r.echo(r.dial(hosttest.VIP4), 1000) })
	// An interface that has other plans.
	err = r.Server.Do(func() error {
		_, err := Open(Options{Name: "s", PinDir: pin, Interfaces: []string{hosttest.ServerInterface}}, r.agent.log)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "xdp off") {
		t.Errorf("error: %v", err)
	}
}

// VIPs come to the loopback and go from it with the assignment; one that was
// there before stays.
func TestVIPsOnLoopback(t *testing.T) {
	r := newRig(t, "2", assignment(config.L2, hosttest.Server4, hosttest.Server4, 12))
	has := func(vip netip.Addr) (yes bool) {
		r.Server.Do(func() error {
			l, err := net.Listen("tcp", netip.AddrPortFrom(vip, 0).String())
			if yes = err == nil; yes {
				l.Close()
			} else if !isUnavailable(err) {
				t.Error(err)
			}
			return nil
		})
		return yes
	}
	if !has(hosttest.VIP4) || !has(hosttest.VIP6) {
		t.Fatal("the VIPs are not on the loopback")
	}
	fewer := *r.as
	fewer.Version++
	fewer.VIPs = fewer.VIPs[:1]
	if err := r.agent.Apply(&fewer); err != nil {
		t.Fatal(err)
	}
	if !has(hosttest.VIP4) || has(hosttest.VIP6) {
		t.Error("the VIP that went is still there, or the other is not")
	}
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	if has(hosttest.VIP4) {
		t.Error("the VIP is still there after unload")
	}
	r.open()
}

func isUnavailable(err error) bool {
	var e *net.OpError
	if op, ok := err.(*net.OpError); ok {
		e = op
	}
	return e != nil && fmt.Sprint(e.Err) == fmt.Sprintf("bind: %v", syscall.EADDRNOTAVAIL)
}
