package host

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
)

// A connection that is silent is renewed: the agent's keepalives are set, and
// their answers echo a new timestamp.
func TestKeepaliveRenewsTheCookie(t *testing.T) {
	t.Parallel()
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
			// 15 bits: 129 s idle limit, before which it is not given up.
			want := []int{1, 32, 16, 7}
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

// What an application asks for on its listener holds: shorter probes as they
// are, longer ones made short enough for the cookie, without giving the
// connection up sooner than it wanted.
func TestKeepaliveOfTheApplication(t *testing.T) {
	t.Parallel()
	r := newRig(t, "1", assignment(choices.L2, hosttest.Server4, hosttest.Server4, 15))
	names := []int{unix.TCP_KEEPIDLE, unix.TCP_KEEPINTVL, unix.TCP_KEEPCNT}
	for _, c := range []struct{ set, want []int }{
		{[]int{10, 3, 2}, []int{10, 3, 2}},
		{[]int{7200, 75, 9}, []int{32, 62, 127}}, // 7,875 s and more
	} {
		control := func(_, _ string, raw syscall.RawConn) (err error) {
			raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
				for i, name := range names {
					err = errors.Join(err, unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, name, c.set[i]))
				}
			})
			return err
		}
		var l net.Listener
		err := r.Server.Do(func() (err error) {
			lc := net.ListenConfig{KeepAlive: -1, Control: control}
			lc.SetMultipathTCP(false)
			l, err = lc.Listen(t.Context(), "tcp4", netip.AddrPortFrom(hosttest.VIP4, 80).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r.dial(hosttest.VIP4)
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := a.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		raw.Control(func(fd uintptr) {
			for _, name := range names {
				v, e := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, name)
				got, err = append(got, v), errors.Join(err, e)
			}
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("idle, interval, count %v became %v, want %v (%v)", c.set, got, c.want, err)
		}
		a.Close()
		l.Close()
	}
}
