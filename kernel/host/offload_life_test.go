package host

import (
	"bytes"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// newOffloadRig has frames come without a tunnel, and SYN cookies allowed.
func newOffloadRig(t *testing.T, timestamps string) *rig {
	t.Helper()
	r := newRig(t, timestamps, offloaded(choices.L2, hosttest.Server4))
	r.syncookies("1")
	return r
}

func (r *rig) syncookies(value string) {
	r.t.Helper()
	if err := r.Server.Sysctl("net.ipv4.tcp_syncookies", value); err != nil {
		r.t.Fatal(err)
	}
	r.tendOffload()
}

func (r *rig) tendOffload() {
	r.t.Helper()
	r.agent.mu.Lock()
	defer r.agent.mu.Unlock()
	if err := r.agent.tendOffload(); err != nil {
		r.t.Fatal(err)
	}
}

// What the kernel's settings or the listener do not allow is the stack's, its
// connections live, and status says why.
func TestOffloadLeavesToTheStack(t *testing.T) {
	t.Parallel()
	r := newOffloadRig(t, "1")
	warned := func(word string) bool {
		r.tendOffload()
		return strings.Contains(strings.Join(r.agent.Status().Warnings, "\n"), word)
	}
	r.syncookies("0")
	if !warned("net.ipv4.tcp_syncookies is 0") {
		t.Errorf("tcp_syncookies=0: warnings %q", r.agent.Status().Warnings)
	}
	r.listenPlain(hosttest.VIP4)
	r.listen(hosttest.VIP6) // MPTCP's
	r.during(func() {
		r.echo(r.dial(hosttest.VIP4), 5000)
		if r.reason("stack_settings") == 0 || r.reason("handshake_answered") != 0 {
			t.Error("with tcp_syncookies=0 the stack has to answer")
		}
		r.syncookies("1")
		if warned("syncookies") {
			t.Errorf("tcp_syncookies=1: warnings %q", r.agent.Status().Warnings)
		}
		r.echo(r.dial(hosttest.VIP6), 5000)
		if r.reason("stack_mptcp") == 0 {
			t.Error("an MPTCP listener's handshakes have to be the stack's")
		}
		if !warned("v1: its listener is MPTCP's") {
			t.Errorf("MPTCP: warnings %q", r.agent.Status().Warnings)
		}
	})
}

// The segment that opened a connection opens no other once that is over.
func TestOffloadReplay(t *testing.T) {
	t.Parallel()
	r := newOffloadRig(t, "1")
	var accepted atomic.Int32
	l := r.plainListener(hosttest.VIP4)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go func() {
				b := make([]byte, 100)
				n, _ := c.Read(b)
				c.Write(b[:n])
				c.Read(b) // until the client has closed
				c.Close()
			}()
		}
	}()
	var mu sync.Mutex
	var sent [][]byte
	c, err := r.Client.Listen(hosttest.ClientInterface, func(p *wire.Parsed, leaves bool) {
		if leaves && p.Protocol == wire.ProtoTCP && p.Flags&(wire.SYN|wire.FIN|wire.RST) == 0 {
			mu.Lock()
			sent = append(sent, bytes.Clone(p.Frame))
			mu.Unlock()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	conn := r.dial(hosttest.VIP4)
	r.echo(conn, 50)
	conn.Close()
	eventually(t, "the connection is over", func() bool { return r.live(1).NoCookie+sum(r.live(1).Epochs) == 0 })
	if accepted.Load() != 1 {
		t.Fatalf("%d connections were accepted", accepted.Load())
	}
	var frames *kernel.Frames
	var index uint32
	err = r.Client.Do(func() (err error) {
		dev, err := net.InterfaceByName(hosttest.ClientInterface)
		if err == nil {
			index = uint32(dev.Index)
			frames, err = kernel.OpenFrames(1000)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer frames.Close()
	before := r.reason("handshake_opened")
	mu.Lock()
	for _, f := range sent {
		if err := frames.Send(index, f); err != nil {
			t.Fatal(err)
		}
	}
	mu.Unlock()
	eventually(t, "a replay is dropped", func() bool { return r.reason("drop_replay") > 0 })
	if now := r.reason("handshake_opened"); now != before || accepted.Load() != 1 {
		t.Errorf("a replay opened a connection: %d opened, %d accepted", now-before, accepted.Load())
	}
	// The client's next connection is none.
	again := r.dial(hosttest.VIP4)
	r.echo(again, 50)
}

func sum(m map[uint32]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

// Killed, the agent's programs go on answering, and one that starts later goes on with
// their key; what the setting is changed to holds for new connections, and both kinds
// live on.
func TestOffloadLife(t *testing.T) {
	t.Parallel()
	r := newOffloadRig(t, "2")
	r.listenPlain(hosttest.VIP4)
	forwards := func() (v string) {
		_ = r.Server.Do(func() error {
			b, err := os.ReadFile(forwardingFiles[4])
			v = strings.TrimSpace(string(b))
			return err
		})
		return v
	}
	r.during(func() {
		first := r.dial(hosttest.VIP4)
		r.echo(first, 5000)
		key := r.agent.offload.last.Key
		r.agent.Close()
		second := r.dial(hosttest.VIP4)
		r.echo(second, 5000)
		r.echo(first, 5000)
		r.open()
		if r.agent.offload.last.Key != key || key == [2]uint64{} {
			t.Error("another key")
		}
		if n := r.reason("handshake_opened"); n != 2 {
			t.Errorf("%d handshakes were offloaded, want 2", n)
		}
		for i := range r.as.VIPs {
			r.as.VIPs[i].Handshake = ""
		}
		r.as.Version++
		if err := r.agent.Apply(r.as); err != nil {
			t.Fatal(err)
		}
		third := r.dial(hosttest.VIP4)
		if r.reason("handshake_opened") != 2 || r.reason("stack_settings") == 0 {
			t.Error("the stack was to answer, and what is under way to be ended")
		}
		r.agent.mu.Lock()
		for key := range r.agent.offload.ending {
			r.agent.offload.ending[key] = time.Now().Add(-time.Second)
		}
		r.agent.mu.Unlock()
		if err := r.agent.resettle(); err != nil {
			t.Fatal(err)
		}
		for key, v := range r.agent.table.Entries {
			if v.Flags&uint16(bpf.HostVIPOffload) != 0 {
				t.Errorf("%v is still offloaded", key)
			}
		}
		if forwards() != "0" || r.agent.folder.Holds(linkName(linkHandshake, hosttest.ServerInterface)) {
			t.Error("what offload needs is still there")
		}
		for _, c := range []net.Conn{first, second, third, r.dial(hosttest.VIP4)} {
			r.echo(c, 100000)
		}
		r.as.VIPs[0].Handshake = choices.HandshakeOffload
		r.as.Version++
		if err := r.agent.Apply(r.as); err != nil {
			t.Fatal(err)
		}
		if forwards() != "1" {
			t.Error("the loopback does not forward")
		}
		for _, c := range []net.Conn{first, third, r.dial(hosttest.VIP4)} {
			r.echo(c, 100000)
		}
		if n := r.reason("handshake_opened"); n != 3 {
			t.Errorf("%d handshakes were offloaded, want 3", n)
		}
	})
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	if forwards() != "0" {
		t.Error("unload left the loopback forwarding")
	}
}

// What an offloaded connection sends is what its stack made, to the millisecond; of one
// that the stack opened every segment is changed.
func TestOffloadUntouched(t *testing.T) {
	t.Parallel()
	for name, offload := range map[string]bool{"offloaded": true, "stack": false} {
		t.Run(name, func(t *testing.T) { untouched(t, offload) })
	}
}

func untouched(t *testing.T, offload bool) {
	r := newOffloadRig(t, "1")
	if !offload {
		r.syncookies("0")
	}
	l := r.plainListener(hosttest.VIP4)
	conn := r.dial(hosttest.VIP4)
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	raw, _ := a.(*net.TCPConn).SyscallConn()
	segments, changed := 0, 0
	for range 200 {
		var stack int
		r.watch.Lock()
		r.watch.last[client] = 0
		r.watch.Unlock()
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { stack, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_TIMESTAMP) })
		if err != nil {
			t.Fatal(err)
		}
		var wire uint32
		eventually(t, "the segment is seen", func() bool {
			r.watch.Lock()
			defer r.watch.Unlock()
			wire = r.watch.last[client]
			return wire != 0
		})
		segments++
		// The clock is read a moment later, or, where the segment was sent again,
		// before: by what the machine took.
		if off := int32(uint32(stack) - wire); off > 10000 || off < -10000 {
			changed++
		}
	}
	if want := map[bool]int{true: 0, false: segments}[offload]; changed != want {
		t.Errorf("offload %v: %d of %d segments are not as the stack made them, want %d", offload, changed, segments, want)
	}
	a.Close()
	conn.Close()
	l.Close()
}

// A client that comes again from a port whose connection is in TIME_WAIT here is the
// stack's, which opens it again.
func TestOffloadTimeWait(t *testing.T) {
	t.Parallel()
	r := newOffloadRig(t, "1")
	l := r.plainListener(hosttest.VIP4)
	r.during(func() {
		for i := range 3 {
			fd := -1
			err := r.Client.Do(func() (err error) {
				if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
					return err
				}
				if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
					return err
				}
				if err = unix.Bind(fd, &unix.SockaddrInet4{Port: 33333, Addr: hosttest.Client4.As4()}); err != nil {
					return err
				}
				return unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: hosttest.VIP4.As4()})
			})
			if err != nil {
				t.Fatal(err)
			}
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c.Close() // first: TIME_WAIT is here
			b := make([]byte, 1)
			if n, err := unix.Read(fd, b); n != 0 || err != nil {
				t.Fatalf("round %d: read %d, %v", i, n, err)
			}
			unix.Close(fd)
			eventually(t, "the connection is over", func() bool { return sum(r.live(1).Epochs) == 0 })
		}
	})
	if opened, taken := r.reason("handshake_opened"), r.reason("stack_taken"); opened != 1 || taken < 2 {
		t.Errorf("%d handshakes offloaded, want 1; %d left to the stack, want 2", opened, taken)
	}
}
