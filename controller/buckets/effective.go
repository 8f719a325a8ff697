package buckets

// View is what one daemon knows besides the table.
type View struct {
	// Now is the time in seconds since 1970.
	Now uint32
	// ChainTime: see Options.
	ChainTime uint32
	// Servers are all that the daemon has a way to, by ascending number.
	// Those with weight 0 (joining, draining, resting) are no deputies.
	Servers []Server
	// Down are the servers that take no new connections for their health;
	// nil: none.
	Down func(number uint16) bool
	// Owns is what agents reported; nil: nothing is known.
	Owns Owns
	// Fewest: a down server's bucket goes to the server that has the fewest
	// for its weight, and stays there while that one is up. Else to one that
	// bucket and servers alone determine, the same at every daemon.
	Fewest bool
}

// Row is what packets of a bucket go by.
type Row struct {
	Current  uint16
	Previous [Chain]uint16 // see Table.Previous; servers that are down stand last
	// Since is the time that its packets carry, in seconds since 1970: of the
	// last move, or when a previous server was last known to own one of its
	// connections.
	Since uint32
}

// Effective is what one daemon's packets go by: the table with its health and
// the agents' reports laid over. Its slices have one element a bucket, are
// read only, and change with Update.
type Effective struct {
	// Generation is the table's.
	Generation uint32
	Current    []uint16
	Since      []uint32
	Previous   [][Chain]uint16

	history
}

type history struct{ table *Table }

// Restore is an Effective of rows that were in force before, so that their
// deputies and chains are kept (a daemon that starts anew). The slices become
// the Effective's own; all must be of one length.
func Restore(generation uint32, current []uint16, since []uint32, previous [][Chain]uint16) *Effective {
	return &Effective{Generation: generation, Current: current, Since: since, Previous: previous}
}

// At is bucket b's row.
func (e *Effective) At(b int) Row { return Row{e.Current[b], e.Previous[b], e.Since[b]} }

// Len is how many buckets e has.
func (e *Effective) Len() int { return len(e.Current) }

// Update brings e to table t as seen by v. e may be new: Update(new(Effective)).
// due is when (seconds since 1970) time alone changes something, so that
// Update must be called again at that time; 0: never. changed: some row did.
func (e *Effective) Update(t *Table, v View) (due uint32, changed bool) {
	panic("being written (A)")
}
