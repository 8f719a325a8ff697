package pcc

import "github.com/fairlead/fairlead/controller/buckets"

// Buckets is the newest table of buckets of a scheme that has one (beamer),
// else nil: for who wants to know what it takes to hand it out.
func Buckets(s Scheme) *buckets.Table {
	if b, ok := s.(*bucketed); ok {
		return b.tables.newest()
	}
	return nil
}
