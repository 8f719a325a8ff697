package tables

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
)

// ErrLimit marks errors of a limit that is too low.
var ErrLimit = errors.New("is too low")

// Fits says whether a balancer with these limits could put a in force, and if
// not which limits to write, and what memory these take. It touches no kernel, and
// makes no table; `fairlead check` asks it before any daemon is told, and a change
// asks it for every step. A balancer may still refuse at limits.server_lines what
// fits here: there a VIP that outgrows its lines holds the old ones until the new
// ones are in force. The size of tables does not hang on the time.
func Fits(a *controller.Assignment, l config.Limits) error {
	most := config.MostLimits()
	c := Capacity{Lines: uint32(most.ServerLines), TableEntries: uint32(most.TableEntries / 2), VIPIDs: bpf.VIPLines}
	p, err := Balancer(a, View{Capacity: c, Random: rand.New(rand.NewPCG(1, a.Version))})
	if errors.Is(err, ErrLimit) {
		return fmt.Errorf("does not fit: %w, and no limit is higher: hash anchor and scheme beamer take less room in tables, smaller pools fewer lines, or make a second deployment", err)
	} else if err != nil {
		return fmt.Errorf("does not fit: %w", err)
	}
	lines := 0
	for _, v := range p.VIPs {
		lines = max(lines, int(v.Lines.End()))
	}
	var wrong, write []string
	if entries := int(2 * p.Need); entries > l.TableEntries {
		wrong = append(wrong, fmt.Sprintf("limits.table_entries %d: the tables of policies, hashes and buckets need %d, half of them for the idle copy", l.TableEntries, entries))
		entries = enough(entries, most.TableEntries)
		write = append(write, fmt.Sprintf("table_entries: %d (%s)", entries, inMiB(entries*8)))
	}
	if lines > l.ServerLines {
		wrong = append(wrong, fmt.Sprintf("limits.server_lines %d: the VIPs' pools need %d, each a power of two and %d at least", l.ServerLines, lines, minRange))
		lines = enough(lines, most.ServerLines)
		write = append(write, fmt.Sprintf("server_lines: %d (%s a CPU)", lines, inMiB(lines*64)))
	}
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("does not fit: %s; write under limits %s", strings.Join(wrong, ", "), strings.Join(write, ", "))
}

// enough is a limit for a need: some more, for pools that grow, and round.
func enough(need, most int) int {
	const unit = 1 << 12
	return min((need+need/16+unit-1)/unit*unit, most)
}

func inMiB(bytes int) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
