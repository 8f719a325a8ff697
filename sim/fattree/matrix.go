package fattree

import "math/rand/v2"

// connection is one elephant: it lasts for the whole run.
type connection struct {
	from, to int
}

// permutation is a traffic matrix in which every host sends to one other host,
// and no two to the same (CFLB §4.2.1), in the order in which they start.
func permutation(hosts int, random *rand.Rand) []connection {
	to := random.Perm(hosts)
	// Who would send to itself takes the destination of any other host; that
	// keeps it a permutation.
	for h := range to {
		for to[h] == h {
			other := random.IntN(hosts)
			to[h], to[other] = to[other], to[h]
		}
	}
	all := make([]connection, hosts)
	for i, from := range random.Perm(hosts) {
		all[i] = connection{from, to[from]}
	}
	return all
}

// overloaded is a matrix in which every host opens some connections, each to
// any other host: receivers have more or fewer than that, and together they
// want more than the hosts' links carry.
func overloaded(hosts, each int, random *rand.Rand) []connection {
	var all []connection
	for from := range hosts {
		for range each {
			to := random.IntN(hosts - 1)
			if to >= from {
				to++
			}
			all = append(all, connection{from, to})
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}
