package member

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// overheard is what becomes of a daemon's report in the store: who has a machine's
// certificate may write there, and who deletes a report would have changes wait for a
// daemon that is well. What the daemon did not write itself it writes anew.
type overheard struct {
	poke   chan struct{} // there is news
	newest atomic.Int64  // revision in which the report was written or deleted
	lost   atomic.Bool   // the watch ended: nobody knows
	told   bool
	on     atomic.Bool // there is a watch
	work   sync.WaitGroup
}

// listen begins to, behind the daemon's own revision rev, unless it does already.
func (o *overheard) listen(ctx context.Context, l *ledger.Ledger, name string, rev int64) {
	if !o.on.CompareAndSwap(false, true) {
		return
	}
	o.work.Go(func() {
		for at, err := range l.Heard(ctx, name, rev) {
			if err != nil {
				break
			}
			o.newest.Store(at)
			daemon.Poke(o.poke)
		}
		if daemon.Sleep(ctx, longestRest) {
			o.on.Store(false)
			o.lost.Store(true)
			daemon.Poke(o.poke)
		}
	})
}

// after says whether the report is not what the daemon wrote in revision rev, its last,
// or may not be.
func (o *overheard) after(rev int64) bool { return o.lost.Swap(false) || o.newest.Load() > rev }

// tell logs that somebody else wrote after rev, once.
func (o *overheard) tell(log *slog.Logger, name string, rev int64) {
	if !o.told && o.newest.Load() > rev {
		log.Warn("the store had another report of this daemon than it wrote, or none; it is written again: does another run under its name?", "daemon", name)
		o.told = true
	}
}
