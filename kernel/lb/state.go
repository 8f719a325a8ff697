package lb

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net/netip"
	"os"
	"sort"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// State reads a loaded balancer through its pins and changes nothing; the
// daemon need not run.
type State struct {
	pinDir string
	o      *objects
}

// ErrNotLoaded says that no balancer is pinned where one was looked for.
var ErrNotLoaded = errors.New("no balancer is loaded")

// OpenReadOnly opens what is pinned under pinDir for reading.
func OpenReadOnly(pinDir string) (*State, error) {
	if _, err := os.Stat(pinDir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w there; start one with fairlead lb", pinDir, ErrNotLoaded)
	}
	o, err := loadPinned(pinDir, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	s := &State{pinDir, o}
	layout, err := o.layout()
	switch {
	case err != nil || o.Programs[progLB] == nil:
		err = fmt.Errorf("%s: %w there; start one with fairlead lb", pinDir, ErrNotLoaded)
	case layout != bpf.Layout:
		err = fmt.Errorf("%s: a fairlead with layout %d loaded it, this one reads layout %d; use that build, or restart the daemon with this one", pinDir, layout, bpf.Layout)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close lets go of the pins.
func (s *State) Close() { s.o.close() }

// Program is a pinned program, nil if there is none of that name.
func (s *State) Program(name string) *ebpf.Program { return s.o.Programs[name] }

// Map is a pinned map, open for reading, nil if there is none of that name.
// It is the State's: do not close it.
func (s *State) Map(name string) *ebpf.Map { return s.o.Maps[name] }

// Counters reads all counters.
func (s *State) Counters() (Counters, error) {
	f, err := readForce(s.o)
	if err != nil {
		return Counters{}, err
	}
	return readCounters(s.o, f)
}

// ClockBase is D of this boot (see LB.ClockBase).
func (s *State) ClockBase() (d uint32, ok bool) {
	m, err := s.o.meta()
	return m.ClockD, err == nil && m.ClockSet != 0
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
