package bench

import (
	"fmt"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/tables"
)

// The pool of VIPs that track: working servers, and a tenth as many in the
// horizon. Anchor has buckets beyond these, as it has by default.
const (
	workingCount = 500
	horizonCount = 50
	anchorSize   = 600
)

// placing is a consistent hash, or a bucket table, as the program reads it.
type placing struct {
	slots       uint32
	form        bpf.HashForm
	size        uint32 // rows, anchor's capacity, buckets
	entries     []uint64
	held, track uint32 // anchor's thresholds
	// place says where a flow goes; track of a bucket: it has moved.
	place func(h uint64) (slot, held int, track bool)
}

func (h placing) tracks(key uint64) bool {
	_, _, track := h.place(key)
	return track
}

type hashes map[string]placing

// makeHash compiles the hash of a name as the daemon does: "small" has
// serverCount servers and no horizon, "table" and "anchor" the pool with one;
// "buckets" and the others are bucket tables of serverCount servers.
func makeHash(name string) (placing, error) {
	switch name {
	case "small":
		return rowsHash(serverCount, 0)
	case "table":
		return rowsHash(workingCount, horizonCount)
	case "anchor":
		return anchorHash()
	case "buckets":
		return bucketHash(bucketCount, 0), nil
	case "buckets-moved":
		return bucketHash(bucketCount, 1), nil
	case "buckets-6m":
		return bucketHash(manyBuckets, manyMoved), nil
	}
	return placing{}, fmt.Errorf("no hash is named %q", name)
}

func rowsHash(working, horizon int) (placing, error) {
	var members []chash.Member
	for i := range working + horizon {
		m := chash.Member{Name: fmt.Sprintf("server-%d", i), Number: i, Horizon: 1}
		if i < working {
			m.New, m.Held = 1, 1
		}
		members = append(members, m)
	}
	t, err := chash.Compile(chash.Spec{Kind: chash.KindTableHRW, Rows: chash.Rows(2 * len(members))}, members)
	if err != nil {
		return placing{}, err
	}
	return placing{slots: uint32(len(members)), size: uint32(len(t.Entries)), entries: wide(t.Entries), place: t.Place}, nil
}

func anchorHash() (placing, error) {
	state := make([]chash.BucketState, workingCount+horizonCount)
	for i := range state {
		state[i] = chash.Working
		if i >= workingCount {
			state[i] = chash.Horizon
		}
	}
	a, err := chash.NewAnchorTable(anchorSize, state)
	if err != nil {
		return placing{}, err
	}
	return placing{slots: uint32(len(state)), form: bpf.HashAnchor, size: uint32(len(a.Entries)),
		entries: wide(a.Entries), held: a.Held, track: a.Track, place: a.Place}, nil
}

const (
	// bucketCount is the default of `buckets`, manyBuckets what 64,000 servers
	// take. Of those every manyMoved-th has moved: a third, as when 32,000
	// servers join as many again.
	bucketCount = 4096
	manyBuckets = 6_400_000
	manyMoved   = 3
)

// bucketHash is a bucket table of n rows over serverCount servers, as the
// daemon lays it out (tables/rows.go): behind the rows two words a
// bucket. Every moved-th has moved (0: none), once.
func bucketHash(n, moved int) placing {
	at := tables.WordsAt(n)
	entries := make([]uint64, tables.BucketEntries(n))
	for b := range n {
		row, current := uint64(bpf.BucketMoved), uint64(b%serverCount)
		if moved == 0 || b%moved != 0 {
			row = current
		}
		entries[b/4] |= row << (b % 4 * 16)
		entries[at+2*b] = current | uint64(b+1)%serverCount<<16 | bpf.BucketNone<<32 | bpf.BucketNone<<48
		entries[at+2*b+1] = sharedNow
	}
	place := func(h uint64) (slot, held int, track bool) {
		b := int(h >> 32 * uint64(n) >> 32)
		return b % serverCount, b % serverCount, moved != 0 && b%moved == 0
	}
	return placing{slots: serverCount, form: bpf.HashBuckets, size: uint32(n), entries: entries, place: place}
}

func wide(entries []uint32) []uint64 {
	w := make([]uint64, len(entries))
	for i, e := range entries {
		w[i] = uint64(e)
	}
	return w
}
