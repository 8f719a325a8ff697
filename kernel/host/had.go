package host

import (
	"net/netip"

	"github.com/fairlead/fairlead/wire"
)

// VIPs are the ids of those that packets go by.
func (a *Agent) VIPs() map[uint32]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := map[uint32]bool{}
	for _, v := range a.table.Entries {
		ids[v.Id] = true
	}
	return ids
}

// Connection is one of TCP that this server has.
type Connection struct {
	Client netip.AddrPort
	Port   uint16 // the service's
}

// Opened says of a connection that its handshake is over.
type Opened bool

// Connections are those that this server has of a service of TCP (port 0: of all
// ports), half-open ones included, TIME_WAIT not.
func (a *Agent) Connections(service netip.AddrPort) (all map[Connection]Opened, err error) {
	const states = tcpStates &^ (1<<tcpListen | 1<<tcpClose | 1<<tcpSynSent | 1<<tcpTimeWait)
	all = map[Connection]Opened{}
	// Twice: one that stands at a seam of the kernel's list can be passed over when
	// others go meanwhile.
	for range 2 {
		err = a.diag.each(wire.ProtoTCP, states, func(s socket) {
			// What this machine says to itself came through no balancer.
			if s.local.Addr() != service.Addr() || s.remote.Addr() == service.Addr() || s.remote.Port() == 0 {
				return
			}
			if port := service.Port(); port == 0 || port == s.local.Port() {
				c := Connection{s.remote, s.local.Port()}
				all[c] = all[c] || s.state != tcpSynRecv && s.state != tcpNewSynRecv
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
