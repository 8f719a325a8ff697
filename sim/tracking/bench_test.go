package tracking

import (
	"context"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/scheme/jet"
)

// BenchmarkTrace is one pass over the default trace with 500
// servers: full-ct over the program's flow table, over a plain open-addressing
// table of the same entries, and JET. Compare within one run, with -count: the
// machine's caches are shared.
func BenchmarkTrace(b *testing.B) {
	o := DefaultTrace()
	trace, err := NewTrace(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	full, few := jet.NewFlows(o.Flows/3), jet.NewFlows(o.Flows/11/3)
	plain := newPlainTable(o.Flows)
	for _, k := range []chash.Kind{chash.KindTableHRW, chash.KindAnchor} {
		p, err := newPlacement(k, false, 500, 50, 1)
		if err != nil {
			b.Fatal(err)
		}
		for name, f := range map[string]*forwarder{
			SchemeFullCT: {flows: full}, SchemePlain: {plain: plain}, SchemeJET: {flows: few, jet: true},
		} {
			f.trace, f.place = trace, p
			b.Run(string(k)+"/"+name, func(b *testing.B) {
				var passes []pass
				for b.Loop() {
					took, err := f.run(context.Background())
					if err != nil {
						b.Fatal(err)
					}
					passes = append(passes, took)
				}
				least := best(passes)
				b.ReportMetric(float64(o.Packets)/least.sum().Seconds()/1e6, "Mpps")
			})
		}
	}
}
