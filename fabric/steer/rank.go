package steer

import "net/netip"

// Ranks number the servers that have one path each (OnePath), so that they spread
// over the fabric. A server keeps its number for as long as it is there, whoever
// comes and goes beside it. The zero value numbers nobody.
type Ranks struct {
	of    map[netip.Addr]int
	taken map[int]bool
}

// Of is the server's number: the one that it has, else the lowest free one.
func (r *Ranks) Of(server netip.Addr) int { return r.take(server, 0, 1) }

// Keep is Of for a server whose connections take path already, an index into as
// many paths: a new number leaves them there while all paths are good.
func (r *Ranks) Keep(server netip.Addr, path, paths int) int { return r.take(server, path, paths) }

// Has says whether the server has a number.
func (r *Ranks) Has(server netip.Addr) bool {
	_, ok := r.of[server]
	return ok
}

// Leave frees the server's number.
func (r *Ranks) Leave(server netip.Addr) {
	if rank, ok := r.of[server]; ok {
		delete(r.taken, rank)
		delete(r.of, server)
	}
}

func (r *Ranks) take(server netip.Addr, rank, step int) int {
	if has, ok := r.of[server]; ok {
		return has
	}
	if r.of == nil {
		r.of, r.taken = map[netip.Addr]int{}, map[int]bool{}
	}
	for r.taken[rank] {
		rank += step
	}
	r.of[server], r.taken[rank] = rank, true
	return rank
}

// OnePathOf is the path that all of a row's entries take: an index into Paths, -1
// where they differ or their path is not known.
func (v *Server) OnePathOf(row Row) int {
	path := v.Of(row[0])
	for _, e := range row[1:] {
		if v.Of(e) != path {
			return -1
		}
	}
	return path
}
