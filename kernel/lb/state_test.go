package lb

import (
	"fmt"
	"math/bits"
	"net/netip"
	"sort"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// What tests read of a loaded balancer, beside what State tells everybody.

// Counters reads all counters.
func (s *State) Counters() (Counters, error) {
	f, err := readForce(s.o)
	if err != nil {
		return Counters{}, err
	}
	return readCounters(s.o, f)
}

// LoadedVIP is a VIP as the tables in force say it.
type LoadedVIP struct {
	ID        uint32
	Address   netip.Addr
	Port      uint16 // 0: all
	Protocol  uint8
	Scheme    uint8 // enum fl_scheme
	Policy    uint8 // enum fl_policy
	Flags     uint8 // enum fl_vip_flags
	Epochs    uint8 // bit e&1: cookies of epoch e decode
	Shift     uint8 // timestamp bits below the cookie
	FirstLine uint32
	Slots     uint32
	NewSize   uint32 // entries of the policy's table
	HashForm  uint8  // enum fl_hash_form
	HashSize  uint32 // rows of the consistent-hash table; Anchor: its capacity; beamer: buckets
	// Generation is the bucket table's, of scheme beamer.
	Generation uint32
	Servers    []LoadedServer
}

// LoadedServer is a slot that names a server.
type LoadedServer struct {
	Slot       uint16
	Address    netip.Addr
	Forwarding string // ipip, gue, l2
	Resolved   bool   // the next hop's MAC is known
	MTU        uint16 // largest packet that fits, from layer 3 on
	Closed     bool   // takes no new connections from the hash
	Down       bool   // by its health checks
	Steered    bool   // its row of the map steers is read
}

// VIPs reads the services in force, by id.
func (s *State) VIPs() ([]LoadedVIP, error) {
	c, err := s.o.readControl()
	if err != nil {
		return nil, err
	}
	entries, err := s.o.readVIPs(c.Active & 1)
	if err != nil {
		return nil, err
	}
	var list []LoadedVIP
	for _, e := range entries {
		if bpf.VIPFlags(e.Flags)&bpf.VIPAddressEntry != 0 {
			continue
		}
		v := LoadedVIP{ID: e.Id, Address: tables.AddrOf(e.Addr), Port: bits.ReverseBytes16(e.Port), Protocol: e.Proto,
			Scheme: e.Scheme, Policy: e.Policy, Flags: e.Flags, Epochs: e.Epochs, Shift: e.Shift,
			FirstLine: e.FirstLine, Slots: e.Slots, NewSize: e.NewSize, HashForm: e.HashForm, HashSize: e.HashSize, Generation: e.Generation}
		if v.Servers, err = s.servers(e); err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list, nil
}

func (s *State) servers(e bpf.VIP) ([]LoadedServer, error) {
	var list []LoadedServer
	for slot := range e.Slots {
		var cpus []bpf.Line
		if err := s.o.Maps[mapLines].Lookup(e.FirstLine+slot, &cpus); err != nil {
			return nil, fmt.Errorf("server line %d: %w", e.FirstLine+slot, err)
		}
		line := cpus[0]
		dst := tables.LineWord(line.MacDst)
		flags, forwarding := dst.Flags(), string(vip.ForwardingOf(uint8(dst.Forwarding())).Name)
		if forwarding == "" {
			continue
		}
		list = append(list, LoadedServer{Slot: uint16(slot), Address: tables.AddrOf(line.Addr), Forwarding: forwarding,
			Resolved: flags&bpf.LineUnresolved == 0, MTU: line.Mtu,
			Closed: flags&bpf.LineClosed != 0, Down: flags&bpf.LineDown != 0,
			Steered: flags&bpf.LineSteered != 0})
	}
	return list, nil
}
