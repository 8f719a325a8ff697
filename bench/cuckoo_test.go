package bench

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"slices"
	"structs"
	"testing"
	"unsafe"

	"github.com/fairlead/fairlead/soak"
)

// jenkins is floor_jhash's and cuckoo_places_of's mixing of three words (lookup3.c's
// "final"), which gives two hashes.
func jenkins(a, b, c uint32) (uint32, uint32) {
	step := func(x, y *uint32, n int) {
		*x ^= *y
		*x -= bits.RotateLeft32(*y, n)
	}
	step(&c, &b, 14)
	step(&a, &c, 11)
	step(&b, &a, 25)
	step(&c, &b, 16)
	step(&a, &c, 4)
	step(&b, &a, 14)
	step(&c, &b, 24)
	return c, b
}

func floorHash(p fig5ScriptPacket, daddr uint32) uint32 {
	const start = 0xdeadbeef + 3<<2
	h, _ := jenkins(p.Saddr+start, daddr+start, (p.Ports&0xffff<<16|p.Ports>>16)+start)
	return h
}

// cuckooModel is bpf/bench/cuckoo.h in Go.
type cuckooModel []fig5CuckooBucket

type cuckooEntry = struct {
	_      structs.HostLayout
	Saddr  uint32
	Daddr  uint32
	Ports  uint32
	Server uint32
}

func (m cuckooModel) places(saddr, daddr, ports uint32) (one, two int) {
	c, b := jenkins(saddr+0xdeadbeef, daddr+0xdeadbeef, ports+0xdeadbeef)
	return int(uint64(c) * uint64(len(m)) >> 32), int(uint64(b) * uint64(len(m)) >> 32)
}

// find is the server + 1 and where that stands.
func (m cuckooModel) find(saddr, daddr, ports uint32) (bucket, way int, ok bool) {
	one, two := m.places(saddr, daddr, ports)
	for _, at := range []int{one, two} {
		for i, e := range m[at].Entry {
			if e.Server != 0 && e.Saddr == saddr && e.Daddr == daddr && e.Ports == ports {
				return at, i, true
			}
		}
	}
	return 0, 0, false
}

// make enters a connection. lost: another that has no place any longer, or itself.
func (m cuckooModel) make(saddr, daddr, ports, server uint32) (lost [2]uint32, moved int) {
	free := func(at int) int {
		return slices.IndexFunc(m[at].Entry[:], func(e cuckooEntry) bool { return e.Server == 0 })
	}
	e := cuckooEntry{Saddr: saddr, Daddr: daddr, Ports: ports, Server: server}
	one, at := m.places(saddr, daddr, ports)
	if i := free(one); i >= 0 {
		m[one].Entry[i] = e
		return lost, 0
	}
	random := saddr ^ ports
	for moved := range 32 {
		if i := free(at); i >= 0 {
			m[at].Entry[i] = e
			return lost, moved
		}
		random = random*0x915f77f5 + 1
		e, m[at].Entry[random>>30] = m[at].Entry[random>>30], e
		one, two := m.places(e.Saddr, e.Daddr, e.Ports)
		if at == one {
			at = two
		} else {
			at = one
		}
	}
	return [2]uint32{e.Saddr, e.Ports}, 32
}

// trackedRig runs packets one after the other and says where each went.
type trackedRig struct {
	*fig5Rig
	t     *testing.T
	daddr uint32
	rows  []uint32
}

func newTrackedRig(t *testing.T, live int, programs ...string) *trackedRig {
	cpu, err := lastCPU()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread() // the table is one CPU's
	t.Cleanup(runtime.UnlockOSThread)
	unpin, err := pin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unpin)
	r := &fig5Rig{}
	t.Cleanup(r.close)
	r.frame, r.run = fig5Frames()
	r.run.Note = 1
	if r.by[0], err = openFig5Program([]string{"rr"}, flowLimit, live, cpu, programs...); err != nil {
		t.Fatal(err)
	}
	r.by[1] = nil
	a := vips["rr"].addr.As4()
	return &trackedRig{r, t, binary.LittleEndian.Uint32(a[:]), nil}
}

// draw gives every row another server.
func (r *trackedRig) draw(random func(uint32) uint32) {
	keys := make([]uint32, floorRows)
	r.rows = make([]uint32, floorRows)
	for i := range keys {
		keys[i], r.rows[i] = uint32(i), random(serverCount)
	}
	if _, err := r.by[0].o.FloorRows.BatchUpdate(keys, r.rows, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *trackedRig) send(program string, packets []fig5ScriptPacket) (servers []uint32) {
	r.t.Helper()
	p := r.by[0]
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&packets[0])), len(packets)*int(unsafe.Sizeof(packets[0])))
	if _, err := p.script.WriteAt(raw, 0); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.time(p, program, "rr", xdpTX, len(packets), sharedNow); err != nil {
		r.t.Fatal(err)
	}
	back := make([]fig5ScriptPacket, len(packets))
	if _, err := p.script.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&back[0])), len(raw)), 0); err != nil {
		r.t.Fatal(err)
	}
	for _, b := range back { // 10.1.0.(server + 1)
		servers = append(servers, b.Server>>24-1)
	}
	return servers
}

func (r *trackedRig) row(p fig5ScriptPacket) uint32 { return r.rows[floorHash(p, r.daddr)%floorRows] }

// Random connections open, speak and close; the table is nearly full, so that entries
// move and some are lost. Program and model have the same table, and whoever has an
// entry goes where it went first, wherever its row points now.
func TestCuckoo(t *testing.T) {
	random := soak.Rand(t)
	r := newTrackedRig(t, 96, "fig5_cuckoo") // 32 buckets
	m := make(cuckooModel, r.by[0].c.Maps["cuckoo"].MaxEntries())
	pool := make([]fig5ScriptPacket, 126)
	for i := range pool {
		pool[i] = fig5ScriptPacket{Saddr: random.Uint32(), Ports: random.Uint32()&0xffff | 80<<24}
	}
	went := map[[2]uint32]uint32{} // by an entry that is there
	lost, moved, found := 0, 0, 0
	for turn := range 40 {
		if turn%10 == 0 {
			r.draw(random.Uint32N)
		}
		packets := make([]fig5ScriptPacket, 16*64)
		for i := range packets {
			packets[i] = pool[random.IntN(len(pool))]
			packets[i].Kind = [...]uint32{kindSYN, kindSegment, kindSegment, kindSegment, kindSegment, kindSegment, kindFIN}[random.IntN(7)]
		}
		for i, got := range r.send("fig5_cuckoo", packets) {
			p := packets[i]
			key := [2]uint32{p.Saddr, p.Ports}
			want, known := went[key]
			at, way, ok := m.find(p.Saddr, r.daddr, p.Ports)
			if ok != known || ok && m[at].Entry[way].Server != want+1 {
				t.Fatalf("turn %d, packet %d: the model has %v, %d; it went to %d, %v", turn, i, ok, m[at].Entry[way].Server, want, known)
			}
			switch {
			case ok:
				found++
				if p.Kind == kindFIN {
					m[at].Entry[way].Server = 0
					delete(went, key)
				}
			default:
				want = r.row(p)
				if p.Kind != kindFIN {
					went[key] = want
					who, n := m.make(p.Saddr, r.daddr, p.Ports, want+1)
					moved += n
					if n == 32 {
						lost++
						delete(went, who)
					}
				}
			}
			if got != want {
				t.Fatalf("turn %d, packet %d (kind %d): went to %d, not %d", turn, i, p.Kind, got, want)
			}
		}
		memory, err := r.by[0].c.Maps["cuckoo"].Memory()
		if err != nil {
			t.Fatal(err)
		}
		table := make(cuckooModel, len(m))
		if _, err := memory.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&table[0])), len(m)*int(unsafe.Sizeof(m[0]))), 0); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(table, m) {
			t.Fatalf("turn %d: the program's table is not the model's", turn)
		}
	}
	t.Logf("%d found, %d moved, %d lost", found, moved, lost)
	if found < 1000 || moved < 100 || lost == 0 {
		t.Error("the table was never full: this tests nothing")
	}
}

// BPF's maps: what has an entry goes where it went first. Of the LRU's an entry may be
// gone, and then the row decides anew.
func TestTrackedByMaps(t *testing.T) {
	random := soak.Rand(t)
	for _, program := range []string{"fig5_hash", "fig5_lru"} {
		r := newTrackedRig(t, 1<<12, program)
		pool := make([]fig5ScriptPacket, 1<<12)
		for i := range pool {
			pool[i] = fig5ScriptPacket{Saddr: random.Uint32(), Ports: random.Uint32()&0xffff | 80<<24}
		}
		went := map[[2]uint32]uint32{}
		kept, again := 0, 0
		for turn := range 20 {
			if turn%5 == 0 {
				r.draw(random.Uint32N)
			}
			packets := make([]fig5ScriptPacket, 1<<12)
			for i := range packets {
				packets[i] = pool[random.IntN(len(pool))]
				packets[i].Kind = [...]uint32{kindSYN, kindSegment, kindSegment, kindFIN}[random.IntN(4)]
			}
			for i, got := range r.send(program, packets) {
				p := packets[i]
				key := [2]uint32{p.Saddr, p.Ports}
				want, known := went[key]
				if known && got != want && program == "fig5_lru" {
					known = false
					again++
				}
				if !known {
					want = r.row(p)
				} else {
					kept++
				}
				if got != want {
					t.Fatalf("%s, turn %d, packet %d: went to %d, not %d", program, turn, i, got, want)
				}
				switch {
				case p.Kind == kindFIN && program == "fig5_hash":
					delete(went, key)
				case p.Kind != kindFIN || known:
					went[key] = want
				default:
					delete(went, key)
				}
			}
		}
		if kept < 1000 || again > kept/10 {
			t.Errorf("%s: %d went by an entry, %d lost theirs", program, kept, again)
		}
	}
}
