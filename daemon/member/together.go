package member

import (
	"math"
	"sync"
	"time"
)

// together is whether all daemons of this daemon's kind are known to go by the
// version in force. One that does not, because it is cut off or its daemon is
// dead, still gives new connections to a bucket's previous server, so that a
// report of none there may be wrong a moment later: while there is such a one,
// chains end by time alone.
type together struct {
	tell func(time.Time) // nil: this plane ends no chains

	mu    sync.Mutex
	since time.Time // all have it; zero: they may not
}

// inFlight is how long a packet that a daemon's kernel sent by an older table
// may be on its way, and the connection that it opens be uncounted.
const inFlight = 5 * time.Second

// never is far ahead of every count; bucket tables' seconds have 32 bits.
var never = time.Unix(math.MaxUint32, 0)

// behind: a version is going to be in force that the others may not have.
func (t *together) behind() { t.set(time.Time{}) }

// heard takes one round of asking, which began at a moment: whether all said
// that they have the version in force, or a newer one.
func (t *together) heard(all bool, began time.Time) {
	if !all {
		t.set(time.Time{})
		return
	}
	t.mu.Lock()
	since := t.since
	t.mu.Unlock()
	if since.IsZero() {
		t.set(began)
	}
}

func (t *together) set(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = since
	switch {
	case t.tell == nil:
	case since.IsZero():
		t.tell(never)
	default:
		t.tell(since.Add(inFlight))
	}
}
