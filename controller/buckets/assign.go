package buckets

func (t *Table) Assign(servers []Server, o Options) []Move { panic("being written (A)") }

func (t *Table) Apply(moves []Move, o Options) (next *Table, forgotten int) { panic("being written (A)") }

func (t *Table) Rules() int { panic("being written (A)") }

func (t *Table) Minimal(servers []Server, o Options, churn int) (steps [][]Move) {
	panic("being written (A)")
}
