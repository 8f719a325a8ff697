package effective

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/controller/buckets"
)

// TestDaemonsTellEachOther: two daemons whose health checks disagree, and one
// that starts from nothing, find each other's connections once they have told
// each other their rows; and telling the same again changes nothing.
func TestDaemonsTellEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := uint32(10_000)
		servers := []buckets.Server{{Number: 0, Weight: 1}, {Number: 1, Weight: 1}, {Number: 2, Weight: 2}, {Number: 3, Weight: 1}, {Number: 4, Weight: 1}}
		u := buckets.New(10, servers)
		down := [2]map[uint16]bool{{}, {}}
		e := [2]*Table{new(Table), new(Table)}
		var conns []conn
		owns := func(n uint16, b int) (bool, uint32) {
			return slices.ContainsFunc(conns, func(c conn) bool { return c.server == n && c.bucket == b }), now
		}
		update := func(i int) (changed bool) {
			v := View{Now: now, ChainTime: chainTime, Servers: servers, Owns: owns, Down: func(n uint16) bool { return down[i][n] }}
			if e[i].Len() == 0 && slices.ContainsFunc(e[1-i].open, func(c chained) bool { return c.moved+chainTime <= now }) {
				// Rows older than the chain time tell nothing, also where owners
				// keep them: who starts from nothing asks the agents, too.
				v.Owners = func(b int) (servers []uint16) {
					for n := range uint16(5) {
						if has, _ := owns(n, b); has {
							servers = append(servers, n)
						}
					}
					return servers
				}
			}
			_, changed = e[i].Update(u, v)
			return changed
		}
		tell := func() (changed bool) {
			for i := range e {
				for first := 0; ; {
					rows, next := e[1-i].Rows(first, 3)
					e[i].Learn(rows)
					if first = next; next == 0 {
						break
					}
				}
			}
			a, b := update(0), update(1)
			return a || b
		}
		settle := func() {
			update(0)
			update(1)
			// What one learns, it tells again.
			for range 6 {
				tell()
			}
			was := [2][][buckets.Chain]uint16{slices.Clone(e[0].Previous), slices.Clone(e[1].Previous)}
			if tell() {
				for i := range e {
					for b, p := range was[i] {
						if r := e[i].At(b); r.Previous != p {
							t.Fatalf("at %d the same told again changes bucket %d of daemon %d: %v to %+v; the other has %+v; the table %+v; down %v", now, b, i, p, r, e[1-i].At(b), buckets.Row{Current: u.Current[b], Previous: u.Previous[b], Since: u.Since[b]}, down)
						}
					}
				}
				t.Fatal("the same told again changes a time")
			}
			conns = slices.DeleteFunc(conns, func(c conn) bool {
				for i := range e {
					r := e[i].At(c.bucket)
					if r.Current == c.server || slices.Contains(r.Previous[:], c.server) {
						continue
					}
					owners := map[uint16]bool{e[0].Current[c.bucket]: true, e[1].Current[c.bucket]: true}
					for _, d := range conns {
						if d.bucket == c.bucket {
							owners[d.server] = true
						}
					}
					if len(owners) <= 1+buckets.Chain {
						t.Fatalf("at %d: daemon %d does not find a connection of server %d in bucket %d: %+v", now, i, c.server, c.bucket, r)
					}
					return true
				}
				return false
			})
		}
		settle()
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"open": func(t *rapid.T) {
				b, i := rapid.IntRange(0, u.Len()-1).Draw(t, "bucket"), rapid.IntRange(0, 1).Draw(t, "daemon")
				conns = append(conns, conn{bucket: b, server: e[i].Current[b]})
			},
			"close": func(t *rapid.T) {
				if n := len(conns); n > 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "which")
					conns = slices.Delete(conns, i, i+1)
				}
			},
			"health": func(t *rapid.T) {
				i, n := rapid.IntRange(0, 1).Draw(t, "daemon"), uint16(rapid.IntRange(0, 4).Draw(t, "server"))
				down[i][n] = !down[i][n]
				settle()
			},
			"from nothing": func(t *rapid.T) {
				e[rapid.IntRange(0, 1).Draw(t, "daemon")] = new(Table)
				settle()
			},
			"weights": func(t *rapid.T) {
				servers = slices.Clone(servers)
				servers[rapid.IntRange(0, 4).Draw(t, "server")].Weight = rapid.IntRange(0, 2).Draw(t, "weight")
				o := buckets.Options{Now: now, ChainTime: chainTime, Owns: owns}
				if moves := u.Assign(servers, o); len(moves) > 0 {
					u, _ = u.Apply(moves, o)
				}
				settle()
			},
			"time": func(t *rapid.T) {
				now += rapid.Uint32Range(1, 60).Draw(t, "seconds")
				settle()
			},
		})
	})
}
