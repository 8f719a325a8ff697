package steer

// Mode is how a server's connections take its good paths.
type Mode int

const (
	// OnePath: all connections of a server take one path.
	OnePath Mode = iota
	// AllPaths: they are spread over all good paths evenly.
	AllPaths
)

// Row says what the server's connections carry if those paths are good, that is
// used (Best; one bool a path). rank is the server's (Ranks), so that servers with
// one path each spread over the fabric. No path good is as if all were.
//
// Each part of the connections has its own order of the paths, and takes the first
// good one of it: it moves only if its path turns bad, or one that it prefers is
// good again.
func (v *Server) Row(mode Mode, good []bool, rank int) (row Row) {
	good = orAll(good)
	for i := range row {
		part := rank
		if mode == AllPaths {
			part = i
		}
		p := prefer(part, good)
		row[i] = v.flows[p][i%len(v.flows[p])]
	}
	return row
}

// Shares is how many of a row's entries each path has.
func (v *Server) Shares(mode Mode, good []bool, rank int) []int {
	shares := make([]int, len(good))
	good = orAll(good)
	for i := range Entries {
		part := rank
		if mode == AllPaths {
			part = i
		}
		shares[prefer(part, good)]++
	}
	return shares
}

func orAll(good []bool) []bool {
	for _, g := range good {
		if g {
			return good
		}
	}
	all := make([]bool, len(good))
	for i := range all {
		all[i] = true
	}
	return all
}

// prefer is the first good path in the order of a part. Of n paths, part i likes
// i mod n best; the others follow, beginning with another one for each part, so
// that what a bad path had is spread over the good ones.
func prefer(part int, good []bool) int {
	n := len(good)
	home := part % n
	if n == 1 || good[home] {
		return home
	}
	turn := part / n % (n - 1)
	for k := range n - 1 {
		if p := (home + 1 + (turn+k)%(n-1)) % n; good[p] {
			return p
		}
	}
	return home
}
