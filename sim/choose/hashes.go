package choose

import "github.com/fairlead/fairlead/chash"

// ByKey is a consistent hash over servers 0 to n-1, looked up key by key.
type ByKey struct {
	hash   chash.Hash
	server []uint16 // by Node
}

// NewByKey makes one. points are a server's on the ring; other kinds ignore
// them.
func NewByKey(kind chash.Kind, n, points int, serverName func(server int) string) (*ByKey, error) {
	servers := make([]chash.Server, n)
	numbers := make(map[string]uint16, n)
	for i := range servers {
		servers[i] = chash.Server{Name: serverName(i), Weight: 1}
		numbers[servers[i].Name] = uint16(i)
	}
	o := chash.Options{Capacity: chash.DefaultCapacity(n, 0), Replicas: points}
	if kind == chash.KindTableHRW {
		o.Rows = chash.Rows(n)
	}
	h, err := chash.New(kind, o, servers...)
	if err != nil {
		return nil, err
	}
	c := &ByKey{hash: h}
	for node := range n {
		c.server = append(c.server, numbers[h.Name(chash.Node(node))])
	}
	return c, nil
}

// Choose is the server of a key.
func (c *ByKey) Choose(key uint64) uint16 { return c.server[c.hash.Lookup(key)] }

// ByRow is a consistent hash as the data plane has it: a table of rows.
type ByRow chash.Table

// NewByRow makes one for servers 0 to n-1.
func NewByRow(kind chash.Kind, n, rows int, serverName func(server int) string) (*ByRow, error) {
	members := make([]chash.Member, n)
	for i := range members {
		members[i] = chash.Member{Name: serverName(i), Number: i, New: 1, Held: 1, Horizon: 1}
	}
	t, err := chash.Compile(chash.Spec{Kind: kind, Rows: rows, Capacity: chash.DefaultCapacity(n, 0)}, members)
	return (*ByRow)(t), err
}

// Choose is the server of a key.
func (t *ByRow) Choose(key uint64) uint16 {
	slot, _, _ := (*chash.Table)(t).Place(key)
	return uint16(slot)
}
