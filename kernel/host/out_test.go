package host

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// out runs host_out over a packet that no socket sent: what it does then is
// what it does for the SYN-ACK of a SYN cookie.
func (p *packets) out(frame []byte) []byte {
	p.t.Helper()
	o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	ret, err := p.o.HostOut.Run(&o)
	if err != nil || int32(ret) != -1 {
		p.t.Fatalf("test run of %d bytes: %v, verdict %d", len(frame), err, int32(ret))
	}
	return o.DataOut
}

// SYN-ACKs are stamped wherever their timestamp stands, keep the low six bits
// of TSval, and have their MSS lowered; checksums stay right.
func TestOutOptions(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	ts := wire.BareTimestamp(0xabcdef, 0x123)
	for name, options := range map[string][]byte{
		"linux":     append(append(wire.MSS(1460), append(wire.SACKPermitted(), ts...)...), 1, 3, 3, 7),
		"aligned":   wire.Timestamp(0xabcdef, 0x123),
		"odd":       append([]byte{1}, append(bytes.Clone(ts), 1)...),
		"last":      append(bytes.Repeat([]byte{1}, 30), ts...),
		"small MSS": append(wire.MSS(1200), append(bytes.Clone(ts), 1, 1)...),
	} {
		for _, c := range [][2]netip.AddrPort{{packetClient4, packetVIP4}, {packetClient6, packetVIP6}} {
			client, vip := c[0], c[1]
			frame := wire.TCP{Src: vip, Dst: client, Flags: wire.SYN | wire.ACK, Options: options}.Frame()
			got := wire.Parse(p.out(frame))
			if errs := got.ChecksumErrors(); got.Err != nil || errs != nil {
				t.Errorf("%s to %v: %v %v", name, client, got.Err, errs)
				continue
			}
			l := p.layout()
			field := l.Encode(hash.Tuple(packetKeys[0], client, vip.Port()), packetSlot, 0)
			low := got.Timestamp.Val - field<<l.Shift()
			age := int32(uint32(kernel.MonotonicMS()) + packetD - low)
			if low&63 != 0xabcdef&63 || age < 0 || age > 1000 || got.Timestamp.Ecr != 0x123 {
				t.Errorf("%s to %v: TSval %#x: %#x under the cookie, %d ms old", name, client, got.Timestamp.Val, low, age)
			}
			if name == "linux" && binary.BigEndian.Uint16(got.Options[2:]) != 1300 {
				t.Errorf("%s to %v: MSS %d, want 1300", name, client, binary.BigEndian.Uint16(got.Options[2:]))
			}
			if name == "small MSS" && binary.BigEndian.Uint16(got.Options[2:]) != 1200 {
				t.Errorf("%s to %v: MSS was raised", name, client)
			}
		}
	}
}

// What is not ours, or cannot be stamped, leaves as it came: and cut or
// broken packets do no harm.
func TestOutLeavesAlone(t *testing.T) {
	t.Parallel()
	p := loadPackets(t)
	ts := wire.Timestamp(1, 2)
	syn := wire.TCP{Src: packetVIP4, Dst: packetClient4, Flags: wire.SYN | wire.ACK, Options: ts}
	same := map[string][]byte{
		"RST without a timestamp": wire.TCP{Src: packetVIP4, Dst: packetClient4, Flags: wire.RST}.Frame(),
		"another port":            wire.TCP{Src: netip.AddrPortFrom(packetVIP4.Addr(), 81), Dst: packetClient4, Flags: wire.SYN | wire.ACK, Options: ts}.Frame(),
		"a SYN of our own":        wire.TCP{Src: packetVIP4, Dst: packetClient4, Flags: wire.SYN, Options: ts}.Frame(),
		"an ACK without a socket": wire.TCP{Src: packetVIP4, Dst: packetClient4, Flags: wire.ACK, Options: ts}.Frame(),
		"UDP":                     wire.UDP{Src: packetVIP4, Dst: packetClient4, Payload: []byte("x")}.Frame(),
		"a fragment":              wire.TCP{Src: packetVIP4, Dst: packetClient4, Flags: wire.SYN | wire.ACK, Options: ts, IP: wire.IP{MoreFragments: true}}.Frame(),
	}
	for n := range len(syn.Frame()) - 34 { // the kernel runs nothing shorter
		same[fmt.Sprintf("cut to %d", n+34)] = syn.Frame()[:n+34]
	}
	for _, options := range [][]byte{{8, 0}, {8, 1}, {8, 9, 0, 0}, {8, 11, 0, 0}, {2, 40}, bytes.Repeat([]byte{1}, 40), {1, 1, 1, 8}} {
		f := syn
		f.Options = options
		same[fmt.Sprintf("options %x", options)] = f.Frame()
	}
	for name, frame := range same {
		if got := p.out(frame); !bytes.Equal(got, frame) {
			t.Errorf("%s: changed\n from %x\n to   %x", name, frame, got)
		}
	}
}

// A client that speaks MPTCP: subflows are what the programs see.
func TestMultipathClient(t *testing.T) {
	t.Parallel()
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		r.during(func() {
			var c net.Conn
			err := r.Client.Do(func() (err error) {
				d := net.Dialer{Timeout: 5 * time.Second}
				d.SetMultipathTCP(true)
				c, err = d.Dial("tcp", netip.AddrPortFrom(hosttest.VIP4, 80).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if multipath, err := c.(*net.TCPConn).MultipathTCP(); err != nil || !multipath {
				t.Fatalf("multipath %v, %v", multipath, err)
			}
			r.echo(c, 1<<20)
			if l := r.live(1); l.Epochs[0] != 1 {
				t.Errorf("live: %+v, want 1", l)
			}
		})
	})
}

// Clients without timestamps, and connections that were there before the
// agent, are left alone and counted.
func TestNoTimestamps(t *testing.T) {
	t.Parallel()
	r := newRig(t, "1", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12))
	r.listen(hosttest.VIP4)
	with := r.dial(hosttest.VIP4)
	if err := r.Client.Sysctl("net.ipv4.tcp_timestamps", "0"); err != nil {
		t.Fatal(err)
	}
	r.during(func() {
		without := r.dial(hosttest.VIP4)
		r.echo(without, 100000)
		r.echo(with, 1000)
		if l := r.live(1); l.NoCookie != 1 || l.Epochs[0] != 1 {
			t.Errorf("live: %+v, want one with and one without a cookie", l)
		}
	})
}

// A listener for both families sees IPv4 as mapped addresses; a VIP of all
// ports has no port to look up.
func TestDualStackListenerAllPorts(t *testing.T) {
	t.Parallel()
	as := assignment(choices.L2, hosttest.Server4, hosttest.Server4, 12)
	for i := range as.VIPs {
		as.VIPs[i].Port = 0
	}
	r := newRig(t, "1", as)
	r.port = 0
	var l net.Listener
	err := r.Server.Do(func() (err error) {
		l, err = net.Listen("tcp", ":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serve(l)
	r.during(func() {
		for _, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
			r.echo(r.dial(vip), 100000)
		}
		for _, id := range []uint32{1, 2} {
			if l := r.live(id); l.Epochs[0] != 1 {
				t.Errorf("vip %d: live %+v, want 1", id, l)
			}
		}
	})
}

// A listener without MPTCP, and connections opened with data in the SYN (TCP
// Fast Open), whose SYN-ACK belongs to a full socket.
func TestPlainListenerAndFastOpen(t *testing.T) {
	t.Parallel()
	eachSysctl(t, 12, func(t *testing.T, r *rig) {
		if err := r.Server.Sysctl("net.ipv4.tcp_fastopen", "1538"); err != nil { // all listeners, no cookie needed
			t.Fatal(err)
		}
		if err := r.Client.Sysctl("net.ipv4.tcp_fastopen", "5"); err != nil {
			t.Fatal(err)
		}
		var l net.Listener
		err := r.Server.Do(func() (err error) {
			var c net.ListenConfig
			c.SetMultipathTCP(false)
			l, err = c.Listen(t.Context(), "tcp6", netip.AddrPortFrom(hosttest.VIP6, 80).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go serve(l)
		r.during(func() {
			r.echo(r.dial(hosttest.VIP6), 100000)
			for range 5 {
				fd := -1
				err := r.Client.Do(func() (err error) {
					fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := unix.Sendto(fd, []byte("hello"), unix.MSG_FASTOPEN, &unix.SockaddrInet6{Port: 80, Addr: hosttest.VIP6.As16()}); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 5)
				if n, err := unix.Read(fd, b); err != nil || string(b[:n]) != "hello" {
					t.Errorf("read %q, %v", b[:n], err)
				}
				unix.Close(fd)
			}
		})
		c, err := r.Server.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if c["TcpExt.TCPFastOpenPassive"] != 5 {
			t.Errorf("%d connections by Fast Open, want 5", c["TcpExt.TCPFastOpenPassive"])
		}
	})
}
