package tables

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/vip"
)

// hashRowsPerSlot sizes the table of a VIP whose assignment says no number of
// rows, as those of a build before do.
const hashRowsPerSlot = 8

// Hash is a VIP's consistent hash as `tables` holds it.
type Hash struct {
	Entries     []uint32
	Form        bpf.HashForm
	held, track uint32 // Anchor's thresholds
}

// Place is where new connections of a key go and where earlier ones are held,
// slots or -1, and whether it is tracked.
func (h *Hash) Place(key uint64) (to, held int, track bool) {
	if h.Form == bpf.HashAnchor {
		return h.Anchor().Place(key)
	}
	return (&chash.Table{Entries: h.Entries}).Place(key)
}

// Anchor is h in its Anchor form.
func (h *Hash) Anchor() *chash.AnchorTable {
	return &chash.AnchorTable{Entries: h.Entries, Held: h.held, Track: h.track}
}

// HashOf is v's hash alone, while all its servers answer.
func HashOf(v *controller.VIP, now time.Time) (*Hash, error) {
	r := setsOf(v, nil, now)
	hash, err := Hashes{}.compile(v, &r)
	return &hash, err
}

// Hashes keeps the consistent hashes of the VIPs between plans: most
// changes, such as a health check's, touch one VIP.
type Hashes map[uint32]struct {
	spec    chash.Spec
	members []chash.Member
	buckets []chash.BucketState
	hash    Hash
}

// Of is the hash of a VIP, by id, that was planned last.
func (h Hashes) Of(id uint32) *Hash {
	hash := h[id].hash
	return &hash
}

// compile is v's hash over the servers of its sets.
func (h Hashes) compile(v *controller.VIP, r *sets) (Hash, error) {
	spec := chash.Spec{Kind: cmp.Or(v.Hash, vip.DefaultHash), Rows: hashRows(v), Capacity: v.Capacity}
	have, ok := h[v.ID]
	if ok && have.spec == spec && slices.Equal(have.members, r.members) && slices.Equal(have.buckets, r.buckets) {
		return have.hash, nil
	}
	hash, err := compileHash(spec, r)
	if err != nil {
		return hash, fmt.Errorf("vip %s: hash %s: %w", v.Name, spec.Kind, err)
	}
	have.spec, have.members, have.buckets, have.hash = spec, r.members, r.buckets, hash
	h[v.ID] = have
	return hash, nil
}

// hashSize is how many entries compile would make, without the work.
func hashSize(v *controller.VIP, r *sets) (entries int, err error) {
	spec := chash.Spec{Kind: cmp.Or(v.Hash, vip.DefaultHash), Rows: hashRows(v), Capacity: v.Capacity}
	if spec.Kind == chash.KindAnchor {
		var hash Hash
		hash, err = compileHash(spec, r)
		return len(hash.Entries), err
	}
	if !slices.ContainsFunc(r.members, func(m chash.Member) bool { return m.New > 0 || m.Held > 0 }) {
		return 0, nil
	}
	return spec.Rows, nil
}

// forgetOthers drops what is kept of VIPs that are no more.
func (h Hashes) forgetOthers(a *controller.Assignment) {
	ids := map[uint32]bool{}
	for i := range a.VIPs {
		ids[a.VIPs[i].ID] = true
	}
	for id := range h {
		if !ids[id] {
			delete(h, id)
		}
	}
}

// compileHash has no entry where no server takes or keeps a connection.
func compileHash(spec chash.Spec, r *sets) (Hash, error) {
	if spec.Kind == chash.KindAnchor {
		if !slices.ContainsFunc(r.buckets, func(b chash.BucketState) bool { return b == chash.Working || b == chash.Draining }) {
			return Hash{}, nil
		}
		t, err := chash.NewAnchorTable(spec.Capacity, r.buckets)
		if err != nil {
			return Hash{}, err
		}
		return Hash{t.Entries, bpf.HashAnchor, t.Held, t.Track}, nil
	}
	if !slices.ContainsFunc(r.members, func(m chash.Member) bool { return m.New > 0 || m.Held > 0 }) {
		return Hash{}, nil
	}
	t, err := chash.Compile(spec, r.members)
	if err != nil {
		return Hash{}, err
	}
	return Hash{Entries: t.Entries, Form: bpf.HashTable}, nil
}

// hashRows is the number of rows of a VIP. It must be the same at every
// balancer and not follow the number of servers, or a change of the pool
// would move everybody: the controller fixes it for the VIP's life.
func hashRows(v *controller.VIP) int {
	if v.HashRows > 0 {
		return v.HashRows
	}
	return min(layoutOf(v).Slots()*hashRowsPerSlot, chash.MaxRows)
}
