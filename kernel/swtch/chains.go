package swtch

import "github.com/fairlead/fairlead/tables/effective"

// Switches follow health each by itself, so that their rows differ beside the
// table: a deputy here, a chain that goes on there. A packet that another
// switch gets must find the same servers asked, so switches tell each other.

// ChainRows is a page of at most max rows that have a chain or are not as the
// table has them, from bucket first on; next is where the next page begins, 0:
// there is none.
func (s *Switch) ChainRows(first, max int) (rows []effective.BucketRow, generation uint32, next int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil || s.desired == nil {
		return nil, 0, 0
	}
	rows, next = s.rows.Rows(first, max)
	return rows, s.rows.Generation, next
}

// LearnChains takes another switch's rows: whom they name is asked here, too,
// as long as the row's time says.
func (s *Switch) LearnChains(rows []effective.BucketRow) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows == nil || s.desired == nil || !s.desired.Serves() {
		return nil
	}
	before := s.snapshot()
	s.rows.Learn(rows)
	s.settle()
	err := s.change()
	if err != nil {
		s.restore(before)
	}
	return err
}
