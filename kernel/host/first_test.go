package host

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// A server that comes back from a reboot is given connections as soon as its first table
// takes them in, or the first that has the VIP, and so all of them are stamped.
func TestFirstTable(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(*controller.Assignment){
		"of all":      nil,
		"of this VIP": func(as *controller.Assignment) { as.VIPs = as.VIPs[1:] },
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); firstTable(t, first) })
	}
}

// firstTable has the agent go by the assignment, after one that is made of it by before.
func firstTable(t *testing.T, before func(*controller.Assignment)) {
	r := newRig(t, "2", assignment(choices.IPIP, hosttest.Server4, hosttest.Server6, 12))
	if err := r.Tunnel(hosttest.VIP4, wire.Outer{Tunnel: wire.IPIP, Src: hosttest.Client4, Dst: hosttest.Server4}); err != nil {
		t.Fatal(err)
	}
	r.listen(hosttest.VIP4)
	r.agent.Close()
	if err := r.Server.Do(func() error { return Unload(r.pin) }); err != nil {
		t.Fatal(err)
	}
	r.agent = nil
	if before != nil {
		as := *r.as
		before(&as)
		whole := r.as
		r.as = &as
		r.open()
		r.as = whole
		r.as.Version++
	}
	r.watch.Lock()
	r.watch.synacks, r.watch.wrong = 0, nil
	r.watch.Unlock()
	var opened atomic.Int32
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for { // as health checks and clients do
			var c net.Conn
			err := r.Client.Do(func() (err error) {
				c, err = net.DialTimeout("tcp", netip.AddrPortFrom(hosttest.VIP4, 80).String(), 50*time.Millisecond)
				return err
			})
			if err == nil {
				opened.Add(1)
				defer c.Close()
			}
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	if before == nil {
		r.open()
	} else if err := r.agent.Apply(r.as); err != nil {
		t.Fatal(err)
	}
	eventually(t, "connections are opened", func() bool { return opened.Load() > 20 })
	close(stop)
	<-stopped
	r.watch.Lock()
	defer r.watch.Unlock()
	if r.watch.synacks == 0 {
		t.Error("no SYN-ACK was seen")
	}
	for _, w := range r.watch.wrong {
		t.Error(w)
	}
}
