package bench

import (
	"fmt"

	"github.com/fairlead/fairlead/chash"
)

// The pool of VIPs that track: working servers, and a tenth as many in the
// horizon. Anchor has buckets beyond these, as it has by default.
const (
	workingCount = 500
	horizonCount = 50
	anchorSize   = 600
)

// hash is a consistent hash as the program reads it.
type hash struct {
	slots       uint32
	form        lbFlHashForm
	entries     []uint32
	held, track uint32 // anchor's thresholds
	place       func(h uint64) (slot, held int, track bool)
}

func (h hash) tracks(key uint64) bool {
	_, _, track := h.place(key)
	return track
}

type hashes map[string]hash

// makeHashes compiles them as the daemon does: "small" has serverCount servers
// and no horizon, "table" and "anchor" the pool with one.
func makeHashes() (hashes, error) {
	table := func(working, horizon int) (hash, error) {
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
			return hash{}, err
		}
		return hash{slots: uint32(len(members)), entries: t.Entries, place: t.Place}, nil
	}
	small, err := table(serverCount, 0)
	if err != nil {
		return nil, err
	}
	large, err := table(workingCount, horizonCount)
	if err != nil {
		return nil, err
	}
	state := make([]chash.BucketState, workingCount+horizonCount)
	for i := range state {
		state[i] = chash.Working
		if i >= workingCount {
			state[i] = chash.Horizon
		}
	}
	a, err := chash.NewAnchorTable(anchorSize, state)
	if err != nil {
		return nil, err
	}
	return hashes{"small": small, "table": large, "anchor": {slots: uint32(len(state)), form: lbFlHashFormFL_HASH_ANCHOR,
		entries: a.Entries, held: a.Held, track: a.Track, place: a.Place}}, nil
}
