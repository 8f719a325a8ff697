package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// offloaded is an assignment whose VIPs have their handshakes answered by the agent.
func offloaded(forwarding choices.Forwarding, tunnel netip.Addr) *controller.Assignment {
	as := assignment(forwarding, tunnel, tunnel, 12)
	for i := range as.VIPs {
		as.VIPs[i].Handshake = choices.HandshakeOffload
	}
	return as
}

// plainListener listens at the server on port 80, without MPTCP.
func (r *rig) plainListener(vip netip.Addr) (l net.Listener) {
	r.t.Helper()
	err := r.Server.Do(func() (err error) {
		var c net.ListenConfig
		c.SetMultipathTCP(false)
		l, err = c.Listen(context.Background(), "tcp", netip.AddrPortFrom(vip, 80).String())
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { l.Close() })
	return l
}

// listenPlain starts an echo server that is no MPTCP one.
func (r *rig) listenPlain(vip netip.Addr) {
	r.t.Helper()
	go serve(r.plainListener(vip))
}

// Handshakes are answered by the programs, whatever way the packets come, and every
// timestamp that the server sends names its slot, though nothing is stamped.
func TestOffload(t *testing.T) {
	t.Parallel()
	for _, timestamps := range []string{"1", "2"} {
		for _, cookies := range []string{"1", "2"} {
			for _, vip := range []netip.Addr{hosttest.VIP4, hosttest.VIP6} {
				family := 4
				if vip.Is6() {
					family = 6
				}
				t.Run(fmt.Sprintf("vip%d-timestamps%s-syncookies%s", family, timestamps, cookies), func(t *testing.T) {
					r := newRig(t, timestamps, offloaded(choices.IPIP, hosttest.Server4))
					if err := r.Server.Sysctl("net.ipv4.tcp_syncookies", cookies); err != nil {
						t.Fatal(err)
					}
					r.agent.mu.Lock()
					err := r.agent.tendOffload()
					r.agent.mu.Unlock()
					if err != nil {
						t.Fatal(err)
					}
					if err := r.Tunnel(vip, wire.Outer{Tunnel: wire.IPIP, Src: hosttest.Client4, Dst: hosttest.Server4}); err != nil {
						t.Fatal(err)
					}
					r.listenPlain(vip)
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
					c, err := r.agent.Counters()
					if err != nil {
						t.Fatal(err)
					}
					var answered, opened, restored uint64
					for _, v := range c.VIPs {
						answered, opened, restored = answered+v.Handshakes.Answered, opened+v.Handshakes.Opened, restored+v.Restored
					}
					if answered < 10 || opened != 10 {
						t.Errorf("%d answered, %d opened, want 10", answered, opened)
					}
					if restored != 0 {
						t.Errorf("%d segments were restored, which were right", restored)
					}
					if w := r.agent.offload.warnings(); len(w) > 0 {
						t.Errorf("warnings %q", w)
					}
				})
			}
		}
	}
}
