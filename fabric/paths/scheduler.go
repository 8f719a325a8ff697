package paths

import (
	"time"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Scheduler gives elephants (long flows) the least loaded of their paths: the
// one whose most loaded link has the fewest flows for its capacity, what is
// measured on the links counted in. Several goroutines may use it.
type Scheduler struct{ net *Net }

// Placement is one elephant and the path it was given.
type Placement struct {
	ID   uint64
	Path Path
	Flow pathsel.Flow // invalid Src: no ports were asked for
	// Until is when it ends by itself; zero: only when it is released.
	Until time.Time
}

// NewScheduler begins with no flows.
func NewScheduler(n *Net) *Scheduler { return &Scheduler{n} }

// Place gives a flow from a to b a path. random decides among paths that are
// equally good.
func (s *Scheduler) Place(a, b Place, r Rules, random uint64) (Placement, error) {
	panic("paths: being written")
}

// Release takes the flow off its links; false if there is none of this ID.
func (s *Scheduler) Release(id uint64) bool { panic("paths: being written") }

// Flows is how many placed flows pass the link, entered at end from.
func (s *Scheduler) Flows(link, from int) int { panic("paths: being written") }

// Load says how much was measured on the link, entered at end from, in bit/s.
// It counts until the time given. It fails if the link has no capacity.
func (s *Scheduler) Load(link, from int, bitsPerSecond float64, until time.Time) error {
	panic("paths: being written")
}
