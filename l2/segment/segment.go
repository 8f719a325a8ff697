// Package segment speaks ARP and neighbour discovery on Ethernets for addresses that
// no interface has: it answers who asks, announces, and asks others. The kernel never
// learns of the addresses, so that it answers nobody when this process is gone, and
// ends nothing that comes for them.
//
//	frame ─▶ read ─▶ a question ─▶ is the address held here? ─▶ answer
//	               └ somebody's word that he has it ─▶ Heard
package segment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/wire"
)

// Options are a Segment's.
type Options struct {
	Interfaces []string
	// Holds says whether an address is here. It is asked for every question.
	Holds func(netip.Addr) bool
	// Heard is told that somebody else says that he has an address.
	Heard func(address netip.Addr, at wire.MAC)
	Log   *slog.Logger
}

// Segment is the Ethernets of a machine. Safe for use by several goroutines.
type Segment struct {
	o     Options
	ports []*port
}

// port is one interface.
type port struct {
	s    *Segment
	name string

	mu    sync.Mutex
	on    station
	index int
	// out is nil while nothing can be sent; fault then says why.
	out   *packet.Conn
	fault string
	// wanted are the groups that the addresses are asked in; members is in groups.
	wanted, groups map[netip.Addr]bool
	members        *ipv6.PacketConn
}

// reopen is how soon an interface that failed is tried again.
const reopen = 200 * time.Millisecond

// Open finds the interfaces, which must be Ethernets. Nothing is sent before Run.
func Open(o Options) (*Segment, error) {
	s := &Segment{o: o}
	for _, name := range o.Interfaces {
		p := &port{s: s, name: name, groups: map[netip.Addr]bool{}, fault: "not open yet"}
		if err := p.find(); err != nil {
			return nil, err
		}
		s.ports = append(s.ports, p)
	}
	return s, nil
}

// find looks up who this machine is on the interface.
func (p *port) find() error {
	i, err := net.InterfaceByName(p.name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.name, err)
	}
	if len(i.HardwareAddr) != len(wire.MAC{}) {
		return fmt.Errorf("interface %s is no Ethernet: it has no address of 6 bytes; name one that has in l2.interfaces", p.name)
	}
	addresses, err := i.Addrs()
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.name, err)
	}
	on := station{mac: wire.MAC(i.HardwareAddr)}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok {
			if local, ok := netip.AddrFromSlice(n.IP); ok && local.Is6() && !local.Is4In6() && local.IsLinkLocalUnicast() {
				on.local = local
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on, p.index = on, i.Index
	return nil
}

// Run answers until ctx ends. An interface that is gone is waited for.
func (s *Segment) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range s.ports {
		g.Go(func() error {
			for ctx.Err() == nil {
				p.failed(p.serve(ctx))
				select {
				case <-ctx.Done():
				case <-time.After(reopen):
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// failed notes why nothing is sent, and says so once.
func (p *port) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = nil
	if err != nil && p.fault != err.Error() {
		p.fault = err.Error()
		p.s.o.Log.Warn("no ARP and ND on an interface; trying again", "interface", p.name, "error", err)
	}
}

// neighbours lets the messages of neighbour discovery through that are read here.
var neighbours = []bpf.Instruction{
	bpf.LoadAbsolute{Off: wire.EthernetLen + 6, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: wire.ProtoICMPv6, SkipTrue: 3},
	bpf.LoadAbsolute{Off: wire.EthernetLen + 40, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ipv6.ICMPTypeNeighborSolicitation), SkipTrue: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(ipv6.ICMPTypeNeighborAdvertisement), SkipTrue: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 1 << 16},
}

// serve answers on the interface until something fails.
func (p *port) serve(ctx context.Context) (err error) {
	if err := p.find(); err != nil {
		return err
	}
	filter, err := bpf.Assemble(neighbours)
	if err != nil {
		return err
	}
	p.mu.Lock()
	mac, index := p.on.mac, p.index
	p.mu.Unlock()
	i := &net.Interface{Index: index, Name: p.name, HardwareAddr: mac[:]}
	arps, err := packet.Listen(i, packet.Raw, wire.EtherTypeARP, nil)
	if err != nil {
		return fmt.Errorf("listen for ARP on %s: %w", p.name, err)
	}
	defer arps.Close()
	nds, err := packet.Listen(i, packet.Raw, wire.EtherTypeIPv6, &packet.Config{Filter: filter})
	if err != nil {
		return fmt.Errorf("listen for ND on %s: %w", p.name, err)
	}
	defer nds.Close()
	p.mu.Lock()
	p.out, p.fault = arps, ""
	if p.members != nil { // the interface may be another of this name
		_ = p.members.Close()
		p.members = nil
	}
	p.groups = map[netip.Addr]bool{}
	err = p.join()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range []*packet.Conn{arps, nds} {
		g.Go(func() error { return p.hear(c) })
	}
	g.Go(func() error {
		<-ctx.Done()
		return errors.Join(arps.SetDeadline(time.Unix(1, 0)), nds.SetDeadline(time.Unix(1, 0)))
	})
	return g.Wait()
}

// hear reads messages until something fails.
func (p *port) hear(c *packet.Conn) error {
	b := make([]byte, 2048)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return fmt.Errorf("hear on %s: %w", p.name, err)
		}
		m, ok := read(b[:n])
		switch {
		case !ok || p.s.own(m.mac):
		case m.says:
			p.s.o.Heard(m.address, m.mac)
		case p.s.o.Holds(m.address):
			// What cannot be sent is asked for again.
			_ = p.send(p.station().answer(m))
		}
	}
}

// own tells this machine's own frames, which another interface on the same Ethernet
// hears.
func (s *Segment) own(mac wire.MAC) bool {
	for _, p := range s.ports {
		p.mu.Lock()
		on := p.on.mac
		p.mu.Unlock()
		if on == mac {
			return true
		}
	}
	return false
}

func (p *port) send(frames ...[]byte) error {
	p.mu.Lock()
	out, fault := p.out, p.fault
	p.mu.Unlock()
	if out == nil {
		return fmt.Errorf("interface %s: %s", p.name, fault)
	}
	for _, f := range frames {
		if f == nil {
			continue
		}
		if _, err := out.WriteTo(f, &packet.Addr{HardwareAddr: net.HardwareAddr(f[:6])}); err != nil {
			return fmt.Errorf("send on %s: %w", p.name, err)
		}
	}
	return nil
}

// station is who this machine is on the interface.
func (p *port) station() station {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on
}

// each does something on all interfaces.
func (s *Segment) each(do func(*port) error) error {
	var errs []error
	for _, p := range s.ports {
		errs = append(errs, do(p))
	}
	return errors.Join(errs...)
}

// Announce tells everybody that an address is here now.
func (s *Segment) Announce(a netip.Addr) error {
	return s.each(func(p *port) error { return p.send(p.station().announcements(a)...) })
}

// Ask asks the machine at these addresses, or everybody where there are none, for an
// address. Heard is told of answers.
func (s *Segment) Ask(a netip.Addr, at ...wire.MAC) error {
	if len(at) == 0 {
		at = []wire.MAC{broadcast}
	}
	return s.each(func(p *port) error {
		var frames [][]byte
		for _, mac := range at {
			frames = append(frames, p.station().question(a, mac))
		}
		return p.send(frames...)
	})
}

// MACs are this machine's, one an interface.
func (s *Segment) MACs() (all []wire.MAC) {
	for _, p := range s.ports {
		all = append(all, p.station().mac)
	}
	return all
}

// Faults are why nobody hears this machine; empty: it can be heard.
func (s *Segment) Faults() (why []string) {
	for _, p := range s.ports {
		p.mu.Lock()
		fault, local := p.fault, p.on.local
		p.mu.Unlock()
		if !local.IsValid() { // it comes with the link
			_ = p.find()
		}
		i, err := net.InterfaceByName(p.name)
		switch {
		case err != nil:
			why = append(why, fmt.Sprintf("interface %s: %v", p.name, err))
		case i.Flags&net.FlagRunning == 0:
			why = append(why, fmt.Sprintf("interface %s has no link", p.name))
		case fault != "":
			why = append(why, fmt.Sprintf("interface %s: %s", p.name, fault))
		}
	}
	if len(why) < len(s.ports) {
		return nil // another interface is heard
	}
	return why
}

// Join makes the addresses those that may be asked for: IPv6 asks in groups, which
// switches bring to their members alone.
func (s *Segment) Join(addresses []netip.Addr) error {
	groups := map[netip.Addr]bool{}
	for _, a := range addresses {
		if a.Is6() {
			group, _ := solicited(a)
			groups[group] = true
		}
	}
	return s.each(func(p *port) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wanted = groups
		return p.join()
	})
}

// join makes the interface's groups those that are wanted; the caller holds mu.
func (p *port) join() error {
	if p.members == nil && len(p.wanted) > 0 {
		c, err := net.ListenPacket("udp6", "[::]:0")
		if err != nil {
			return fmt.Errorf("a socket for IPv6 groups: %w", err)
		}
		p.members = ipv6.NewPacketConn(c)
		// It is there for its memberships; nobody is to send it anything.
		if none, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{}}); err == nil {
			_ = p.members.SetBPF(none)
		}
	}
	on := &net.Interface{Index: p.index}
	for g := range p.wanted {
		if p.groups[g] {
			continue
		}
		if err := p.members.JoinGroup(on, &net.UDPAddr{IP: g.AsSlice()}); err != nil {
			return fmt.Errorf("join group %s on %s: %w", g, p.name, err)
		}
		p.groups[g] = true
	}
	for g := range p.groups {
		if !p.wanted[g] {
			_ = p.members.LeaveGroup(on, &net.UDPAddr{IP: g.AsSlice()})
			delete(p.groups, g)
		}
	}
	return nil
}

// Close lets go of what Run does not.
func (s *Segment) Close() error {
	return s.each(func(p *port) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.members == nil {
			return nil
		}
		return p.members.Close()
	})
}
