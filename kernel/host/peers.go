package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/kernel/nexthop"
	"github.com/fairlead/fairlead/tables"
)

// The other servers of this server's VIPs of schemes beamer and faild: those
// that packets may be passed on to (host_peers), and that may pass on to us
// (host_senders).

const (
	// resolveLimit bounds how long Apply waits for the ways to new peers.
	resolveLimit = 2 * time.Second
)

// peerTable is what host_peers and host_senders hold.
type peerTable struct {
	mu      sync.Mutex
	want    map[bpf.HostPeerKey]netip.Addr
	written map[bpf.HostPeerKey]bpf.HostPeer
	senders map[[16]byte]bool // written
}

// adoptPeers reads what is pinned.
func (a *Agent) adoptPeers() error {
	t := &a.peers
	t.want, t.written = map[bpf.HostPeerKey]netip.Addr{}, map[bpf.HostPeerKey]bpf.HostPeer{}
	t.senders = map[[16]byte]bool{}
	var key bpf.HostPeerKey
	var peer bpf.HostPeer
	it := a.set.HostPeers.Iterate()
	for it.Next(&key, &peer) {
		t.written[key] = peer
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("map host_peers: %w", err)
	}
	var addr [16]byte
	var one uint8
	it = a.set.HostSenders.Iterate()
	for it.Next(&addr, &one) {
		t.senders[addr] = true
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("map host_senders: %w", err)
	}
	return nil
}

// putPeers adds the peers of p, with the ways to them known as far as they can
// be: the first packet that is to be passed on will be. Those that are gone
// stay until dropPeers.
func (a *Agent) putPeers(p *tables.HostPlan) error {
	a.hops.Watch(p.Ways, resolveLimit)
	t := &a.peers
	t.mu.Lock()
	defer t.mu.Unlock()
	t.want = p.Peers
	for addr := range p.Senders {
		if t.senders[addr] {
			continue
		}
		if err := a.set.HostSenders.Put(addr, uint8(1)); err != nil {
			return full("host_senders", a.set.HostSenders, err)
		}
		t.senders[addr] = true
	}
	return a.writePeers()
}

// writePeers brings the entries of wanted peers up to date; t.mu is held.
func (a *Agent) writePeers() error {
	t := &a.peers
	var keys []bpf.HostPeerKey
	var values []bpf.HostPeer
	for key, addr := range t.want {
		peer := peerOf(addr, a.hops.Get(addr))
		if old, ok := t.written[key]; !ok || old != peer {
			keys, values = append(keys, key), append(values, peer)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if _, err := a.set.HostPeers.BatchUpdate(keys, values, nil); err != nil {
		return full("host_peers", a.set.HostPeers, err)
	}
	for i, key := range keys {
		t.written[key] = values[i]
	}
	return nil
}

// refreshPeers is called when the way to some peer may have changed.
func (a *Agent) refreshPeers() {
	a.peers.mu.Lock()
	err := a.writePeers()
	a.peers.mu.Unlock()
	if err != nil {
		a.log.Error("follow the ways to other servers", "error", err)
	}
}

// dropPeers removes what p does not have.
func (a *Agent) dropPeers(p *tables.HostPlan) error {
	t := &a.peers
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.written {
		if _, ok := p.Peers[key]; ok {
			continue
		}
		if err := a.set.HostPeers.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("map host_peers: %w", err)
		}
		delete(t.written, key)
	}
	for addr := range t.senders {
		if p.Senders[addr] {
			continue
		}
		if err := a.set.HostSenders.Delete(addr); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("map host_senders: %w", err)
		}
		delete(t.senders, addr)
	}
	return nil
}

func full(name string, m *ebpf.Map, err error) error {
	return fmt.Errorf("map %s: %w; it has room for %d servers, summed over VIPs: give the server fewer or smaller pools",
		name, err, m.MaxEntries())
}

// peerOf is a peer's entry, given what is known of the way to it.
func peerOf(addr netip.Addr, h nexthop.Hop) bpf.HostPeer {
	p := bpf.HostPeer{Addr: tables.Key{Addr: addr}.Words()}
	if addr.Is6() {
		p.Flags |= bpf.PeerIPV6
	}
	// What is silent behind a router may be the router.
	if h.Silent && h.OnLink() {
		p.Flags |= bpf.PeerSilent
	}
	if !h.Usable() {
		p.Flags |= bpf.PeerUnresolved
		return p
	}
	p.MacDst, p.MacSrc = macWord(h.MAC, 0), macWord(h.Source, h.VLAN)
	p.Ifindex = uint32(h.Ifindex)
	return p
}

// macWord is a MAC in bytes 0-5, and a VLAN tag (0: untagged) in bytes 6-7.
func macWord(mac [6]byte, vlan uint16) uint64 {
	var b [8]byte
	copy(b[:], mac[:])
	binary.NativeEndian.PutUint16(b[6:], vlan)
	return binary.NativeEndian.Uint64(b[:])
}

// Peer is another server of a VIP, as Status shows it.
type Peer struct {
	VIP     uint32
	Slot    uint16
	Address netip.Addr
	// Looked says that the way to it is looked up at all: where the pool is
	// large, if a chain names it or it is on its way out.
	Looked bool
	// Silent: datagrams are not passed on to it.
	Silent bool
	Hop    nexthop.Hop
}

func (a *Agent) listPeers() []Peer {
	ways := map[netip.Addr]nexthop.Hop{}
	for _, h := range a.hops.List() {
		ways[h.Server] = h
	}
	a.peers.mu.Lock()
	defer a.peers.mu.Unlock()
	var all []Peer
	for key, addr := range a.peers.want {
		h, ok := ways[addr]
		silent := a.peers.written[key].Flags&bpf.PeerSilent != 0
		all = append(all, Peer{VIP: key.VipId, Slot: key.Slot, Address: addr, Looked: ok, Silent: silent, Hop: h})
	}
	return all
}
