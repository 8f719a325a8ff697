package buckets

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// rapid prints the seed of what fails.

// drawServers are some servers with gaps between their numbers, by number.
func drawServers(t *rapid.T, most, weight int, label string) []Server {
	numbers := rapid.SliceOfNDistinct(rapid.Uint16Range(0, uint16(most)), 1, most, rapid.ID).Draw(t, label)
	slices.Sort(numbers)
	var servers []Server
	for _, n := range numbers {
		servers = append(servers, Server{n, rapid.IntRange(0, weight).Draw(t, fmt.Sprintf("weight of %d", n))})
	}
	return servers
}

// drawTable is any valid table: numbers up to most, times up to now.
func drawTable(t *rapid.T, n, most int, now uint32) *Table {
	u := New(n, nil)
	u.Generation = rapid.Uint32().Draw(t, "generation")
	for b := range n {
		row := rapid.SliceOfNDistinct(rapid.Uint16Range(0, uint16(most)), 0, Chain+1, rapid.ID).Draw(t, "row")
		if len(row) == 0 {
			continue
		}
		u.Current[b] = row[0]
		copy(u.Previous[b][:], row[1:])
		if len(row) > 1 {
			u.Since[b] = rapid.Uint32Range(1, now).Draw(t, "since")
		}
	}
	return u
}

// fewest is how few moves there are to any table in which every server is
// within one bucket of its share: all are tried.
func fewest(loads, shares, total []int, n int) int {
	best := -1
	var try func(i, left, gained int)
	try = func(i, left, gained int) {
		if i == len(loads) {
			if left == 0 && (best < 0 || gained < best) {
				best = gained
			}
			return
		}
		for want := 0; want <= left; want++ {
			// |want - share| < 1, in whole numbers.
			if d := want*total[0] - shares[i]; d <= -total[0] || d >= total[0] {
				continue
			}
			try(i+1, left-want, gained+max(0, want-loads[i]))
		}
	}
	try(0, n, 0)
	return best
}

func TestAssignHasFewestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 14).Draw(t, "buckets")
		o := Options{Now: 1000, ChainTime: rapid.Uint32Range(1, 2000).Draw(t, "chain time")}
		u := drawTable(t, n, 7, o.Now)
		servers := drawServers(t, 6, 4, "servers")
		total := 0
		for _, s := range servers {
			total += s.Weight
		}
		moves := u.Assign(servers, o)
		if total == 0 {
			if len(moves) > 0 {
				t.Fatalf("nobody takes buckets, and %v move", moves)
			}
			return
		}
		before := u.loads()
		var loads, shares []int
		for _, s := range servers {
			if s.Weight > 0 {
				loads, shares = append(loads, before[s.Number]), append(shares, n*s.Weight)
			}
		}
		if want := fewest(loads, shares, []int{total}, n); len(moves) != want {
			t.Fatalf("%d moves, %d are enough: %v to %v", len(moves), want, u.Current, moves)
		}
		next, _ := u.Apply(moves, o)
		after := next.loads()
		for _, s := range servers {
			if d := after[s.Number]*total - n*s.Weight; d <= -total || d >= total {
				t.Fatalf("server %d of weight %d of %d has %d of %d buckets", s.Number, s.Weight, total, after[s.Number], n)
			}
		}
		checkAge(t, u, servers, moves, o)
		if next.Generation != u.Generation+1 || next.Validate() != nil {
			t.Fatalf("generation %d after %d: %v", next.Generation, u.Generation, next.Validate())
		}
	})
}

// checkAge: a server that keeps some of its buckets keeps the youngest, and
// gives none away that forgets somebody while it has another.
func checkAge(t *rapid.T, u *Table, servers []Server, moves []Move, o Options) {
	moved := map[int]bool{}
	for i, m := range moves {
		moved[int(m.Bucket)] = true
		if i > 0 && moves[i-1].Bucket >= m.Bucket {
			t.Fatalf("moves not in order: %v", moves)
		}
		if u.Current[m.Bucket] == m.To {
			t.Fatalf("bucket %d moves to server %d, which has it", m.Bucket, m.To)
		}
	}
	for b := range u.Current {
		for c := range u.Current {
			if u.Current[b] != u.Current[c] || !moved[b] || moved[c] {
				continue
			}
			switch fullB, fullC := o.full(u, b), o.full(u, c); {
			case fullB && !fullC:
				t.Fatalf("bucket %d moves and forgets somebody, bucket %d of the same server would not", b, c)
			case fullB == fullC && u.Since[b] > u.Since[c]:
				t.Fatalf("bucket %d moves, though bucket %d of the same server moved longer ago (%d, %d)", b, c, u.Since[b], u.Since[c])
			}
		}
	}
}

// TestForgetsNoneInVain: of the buckets that must move and are full, as many
// go to servers in their chain as any way with the same loads allows.
func TestForgetsNoneInVain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "buckets")
		o := Options{Now: 1000, ChainTime: 2000}
		u := drawTable(t, n, 5, o.Now)
		// Everybody that has something drains; three others come.
		servers := []Server{{2, rapid.IntRange(0, 2).Draw(t, "2")}, {4, 1}, {5, rapid.IntRange(0, 2).Draw(t, "5")}}
		moves := u.Assign(servers, o)
		next, forgotten := u.Apply(moves, o)
		// Every way to give the moved buckets so that loads are the same and
		// no bucket stays where it was.
		after := next.loads()
		best := len(moves) + 1
		to := make([]Move, len(moves))
		var try func(i int)
		try = func(i int) {
			if i == len(moves) {
				if _, f := u.Apply(to, o); f < best {
					best = f
				}
				return
			}
			for _, s := range servers {
				got := 0
				for _, m := range to[:i] {
					if m.To == s.Number {
						got++
					}
				}
				may := 0
				for _, m := range moves {
					if m.To == s.Number {
						may++
					}
				}
				if got < may && after[s.Number] > 0 && u.Current[moves[i].Bucket] != s.Number {
					to[i] = Move{moves[i].Bucket, s.Number}
					try(i + 1)
				}
			}
		}
		try(0)
		if forgotten > best {
			t.Fatalf("%d forgotten, %d would do: %v", forgotten, best, moves)
		}
	})
}

// TestConnectionsSurviveThreeMoves: whoever had a bucket within the chain time
// is current or in its chain, for as long as it changed hands three times.
func TestConnectionsSurviveThreeMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type connection struct {
			bucket int
			server uint16
			moves  int
		}
		o := Options{Now: 1000, ChainTime: 240}
		n := rapid.IntRange(1, 64).Draw(t, "buckets")
		u := New(n, drawServers(t, 8, 3, "first"))
		var live []connection
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			for b, s := range u.Current {
				if s != None && rapid.Bool().Draw(t, "opens") {
					live = append(live, connection{b, s, 0})
				}
			}
			o.Now += rapid.Uint32Range(1, 70).Draw(t, "seconds")
			o.Owns = func(number uint16, bucket int) (bool, uint32) {
				return slices.ContainsFunc(live, func(c connection) bool { return c.bucket == bucket && c.server == number }), o.Now
			}
			moves := u.Assign(drawServers(t, 8, 3, "servers"), o)
			next, forgotten := u.Apply(moves, o)
			if err := next.Validate(); err != nil {
				t.Fatal(err)
			}
			for i := range live {
				c := &live[i]
				if next.Current[c.bucket] != u.Current[c.bucket] {
					c.moves++
				}
				there := next.Current[c.bucket] == c.server || slices.Contains(next.Previous[c.bucket][:], c.server)
				if !there && (c.moves <= Chain || forgotten == 0) {
					t.Fatalf("a connection of bucket %d at server %d is lost after %d moves (%d forgotten): %v", c.bucket, c.server, c.moves, forgotten, next.Previous[c.bucket])
				}
			}
			live = slices.DeleteFunc(live, func(c connection) bool {
				return next.Current[c.bucket] != c.server && !slices.Contains(next.Previous[c.bucket][:], c.server) || rapid.IntRange(0, 3).Draw(t, "closes") == 0
			})
			u = next
		}
	})
}

func TestMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "buckets")
		servers := drawServers(t, 6, 3, "servers")
		o := Options{Now: 5000, ChainTime: 240}
		u := New(n, servers)
		if u.Current[0] == None {
			return
		}
		if rapid.Bool().Draw(t, "shuffled") {
			u.Current = rapid.Permutation(u.Current).Draw(t, "current")
		}
		young := 0
		for b := range u.Since {
			if rapid.IntRange(0, 9).Draw(t, "moved lately") == 0 {
				u.Since[b] = o.Now - 10
				young++
			}
		}
		churn := rapid.IntRange(0, 7).Draw(t, "churn")
		loads := u.loads()
		at := u
		for _, step := range at.Minimal(servers, o, churn) {
			if len(step) > max(churn, 2) {
				t.Fatalf("a step of %d moves, churn %d", len(step), churn)
			}
			for i, m := range step {
				switch b := m.Bucket; {
				case at.Since[b] != 0 && at.Since[b]+o.ChainTime > o.Now:
					t.Fatalf("bucket %d moves, which last did at %d, now %d", b, at.Since[b], o.Now)
				case at.Current[b] == m.To:
					t.Fatalf("bucket %d moves to where it is", b)
				case slices.ContainsFunc(step[:i], func(n Move) bool { return n.Bucket == b }):
					t.Fatalf("bucket %d moves twice in one step: %v", b, step)
				}
			}
			next, _ := at.Apply(step, o)
			if *next.loads() != *loads {
				t.Fatalf("step %v changes loads", step)
			}
			at = next
			o.Now += o.ChainTime
		}
		used := 0
		for _, l := range loads[:MaxServers] {
			if l > 0 {
				used++
			}
		}
		if young == 0 && at.Rules() != used {
			t.Fatalf("%d rules for %d servers: %v", at.Rules(), used, at.Current)
		}
		if again := at.Minimal(servers, o, churn); young == 0 && len(again) > 0 {
			t.Fatalf("a minimal table changes: %v by %v", at.Current, again)
		}
	})
}

func TestNewIsMinimalAndEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "buckets")
		servers := drawServers(t, 9, 5, "servers")
		u := New(n, servers)
		if err := u.Validate(); err != nil {
			t.Fatal(err)
		}
		with := slices.DeleteFunc(slices.Clone(servers), func(s Server) bool { return s.Weight == 0 })
		if len(with) > 0 && u.Rules() > len(with) {
			t.Fatalf("%d rules for %d servers", u.Rules(), len(with))
		}
		if moves := u.Assign(servers, Options{}); len(moves) > 0 {
			t.Fatalf("a new table changes: %v", moves)
		}
	})
}

func TestLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.Uint64Range(0, 400), 1, 200, rapid.ID).Draw(t, "keys")
		k := rapid.IntRange(0, len(keys)).Draw(t, "k")
		want := slices.Sorted(slices.Values(keys))[:k]
		least(keys, k)
		if got := slices.Sorted(slices.Values(keys[:k])); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}
