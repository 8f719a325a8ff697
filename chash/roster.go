package chash

// place is where a Hash has a server.
type place uint8

const (
	nowhere place = iota
	inWorking
	inHorizon
)

// roster is the part that all Hashes share: which servers it knows, under
// which handle, with what weight, in which set. A Hash embeds it for Name and
// Len, asks check before a change and notes it with put or drop.
type roster struct {
	kind    Kind
	byName  map[string]Node
	servers []rosterServer // by Node
	free    []Node
	count   [inHorizon + 1]int
}

type rosterServer struct {
	name   string
	weight int
	place  place
}

func newRoster(k Kind) roster { return roster{kind: k, byName: map[string]Node{}} }

// Name returns the server behind a handle, "" if it stands for none.
func (r *roster) Name(n Node) string {
	if n < 0 || int(n) >= len(r.servers) {
		return ""
	}
	return r.servers[n].name
}

// Len returns the number of servers that work, and in the horizon.
func (r *roster) Len() (working, horizon int) { return r.count[inWorking], r.count[inHorizon] }

// find returns a server's handle and where it is: NoNode, nowhere if unknown.
func (r *roster) find(name string) (Node, place) {
	n, ok := r.byName[name]
	if !ok {
		return NoNode, nowhere
	}
	return n, r.servers[n].place
}

// check tells whether a server may go to a set with that weight, and where
// it is now. Nothing changes.
func (r *roster) check(name string, to place, weight int) (n Node, from place, err error) {
	n, from = r.find(name)
	if from == to && to == inWorking {
		return n, from, working(name)
	}
	if from == to && to == inHorizon {
		return n, from, parked(name)
	}
	return n, from, r.checkWeight(name, weight)
}

// checkKnown is check for SetWeight: the server stays where it is.
func (r *roster) checkKnown(name string, weight int) (n Node, in place, err error) {
	n, in = r.find(name)
	if in == nowhere {
		return n, in, unknown(name)
	}
	return n, in, r.checkWeight(name, weight)
}

// SetWeight implements Hash, where all servers weigh the same.
func (r *roster) SetWeight(name string, weight int) error {
	_, in, err := r.checkKnown(name, weight)
	if err != nil {
		return err
	}
	r.put(name, in, weight)
	return nil
}

func (r *roster) checkWeight(name string, weight int) error {
	if err := checkWeight(name, weight); err != nil || r.kind.Weighted() {
		return err
	}
	for _, s := range r.servers {
		// All others are alike, so the first tells.
		if s.place != nowhere && s.name != name {
			if s.weight != weight {
				return unequal(r.kind, name, weight, s.name, s.weight)
			}
			return nil
		}
	}
	return nil
}

// put notes a server's set and weight, and returns its handle.
func (r *roster) put(name string, to place, weight int) Node {
	n, from := r.find(name)
	if from == nowhere {
		if k := len(r.free); k > 0 {
			n, r.free = r.free[k-1], r.free[:k-1]
		} else {
			n = Node(len(r.servers))
			r.servers = append(r.servers, rosterServer{})
		}
		r.byName[name] = n
	} else {
		r.count[from]--
	}
	r.servers[n] = rosterServer{name, weight, to}
	r.count[to]++
	return n
}

// drop forgets a server.
func (r *roster) drop(n Node) {
	s := r.servers[n]
	r.count[s.place]--
	delete(r.byName, s.name)
	r.servers[n] = rosterServer{}
	r.free = append(r.free, n)
}
