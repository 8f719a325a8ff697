package dataplane

import (
	"fmt"
	"math/rand/v2"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/viptable"
)

// Fits says whether a balancer with these limits could put a in force, with
// the limit that is too small. It touches no kernel; `fairlead check` asks it
// before any daemon is told, and a change asks it for every step. A balancer
// may still refuse at limits.server_lines what fits here: there a VIP that
// outgrows its lines holds the old ones until the new ones are in force. The
// size of tables does not hang on the time.
func Fits(a *controller.Assignment, l config.Limits) error {
	c := capacity{lines: uint32(l.ServerLines), tableEntries: uint32(l.TableEntries / 2), vipIDs: viptable.Lines}
	if _, err := makePlan(a, nil, moment{}, nil, c, 0, hashTables{}, nil, rand.New(rand.NewPCG(1, a.Version))); err != nil {
		return fmt.Errorf("does not fit: %w", err)
	}
	return nil
}
