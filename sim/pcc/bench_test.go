package pcc

import (
	"testing"

	"github.com/fairlead/fairlead/sim"
	"github.com/fairlead/fairlead/sim/workload"
)

// BenchmarkLookup: 70,000 live connections look themselves up after an update
// of a pool of 468 servers; the update itself is not measured.
func BenchmarkLookup(b *testing.B) { benchmark(b, false) }

// BenchmarkUpdate: the update, with the first of those look-ups, for which
// hashes are brought up to date.
func BenchmarkUpdate(b *testing.B) { benchmark(b, true) }

func benchmark(b *testing.B, updates bool) {
	base := NewBase()
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			s, err := New(name, base.setup(1))
			if err != nil {
				b.Fatal(err)
			}
			pool := NewPool(base.Servers, base.Standby)
			if err := s.Update(pool, 0); err != nil {
				b.Fatal(err)
			}
			if t, ok := s.(Stateful); ok {
				t.Join(0, float64(base.Active))
			}
			c := population(base.Active)
			s.Open(&c)
			changes := Changes(1, base.Servers, base.Standby, workload.Updates{PerMinute: 60, Even: true}.Draw(sim.Stream(1, "updates"), 3000*sim.Second))
			for i := 0; b.Loop(); i++ {
				if !updates {
					b.StopTimer()
				}
				pool.Apply(changes[i%len(changes)])
				c.Now = changes[i%len(changes)].At
				if err := s.Update(pool, c.Now); err != nil {
					b.Fatal(err)
				}
				c.Version, c.Newest = pool.Version, pool.Version
				s.Forget(pool.Version)
				few := c
				few.Key, few.Start, few.Via, few.First, few.Note, few.At = c.Key[:1], c.Start[:1], c.Via[:1], c.First[:1], c.Note[:1], c.At[:1]
				s.Serve(&few)
				if !updates {
					b.StartTimer()
					s.Serve(&c)
					Judge(&c)
				}
			}
			if !updates {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*base.Active), "ns/lookup")
			}
		})
	}
}

// population is so many connections at one balancer.
func population(n int) Conns {
	c := Conns{
		Key: make([]uint64, n), Start: make([]sim.Time, n), Via: make([]uint16, n),
		First: make([]uint16, n), Note: make([]uint32, n), At: make([]uint16, n),
	}
	for i := range c.Key {
		c.Key[i] = sim.SplitMix(uint64(i) + 1<<40)
	}
	return c
}
