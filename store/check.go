package store

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// errForeign: with another store's lease, a key would never end.
	errForeign = errors.New("a lease is of the store that granted it")
	errShort   = errors.New("a lease lives longer than no time")
)

// check refuses what etcd would refuse, or take for something else, before it is
// sent, so that every Store refuses the same. Each key costs extra bytes more, of a
// prefix that the caller does not see.
func check(extra int, ifs []If, ops []Op) error {
	if len(ifs) > MaxOps || len(ops) > MaxOps {
		return fmt.Errorf("a commit has up to %d operations and conditions, not %d and %d: make it several", MaxOps, len(ops), len(ifs))
	}
	size := 0
	for _, c := range ifs {
		if c.Key == "" {
			return errors.New("a condition has no key")
		}
		size += OpBytes + extra + len(c.Key)
	}
	for i, o := range ops {
		if err := o.check(); err != nil {
			return err
		}
		for _, other := range ops[:i] {
			if o.meets(other) || other.meets(o) {
				return fmt.Errorf("a commit has two operations for %q: make them one", o.Key)
			}
		}
		size += OpBytes + extra + len(o.Key) + len(o.Value)
	}
	if size > MaxCommit {
		return fmt.Errorf("a commit of %d bytes exceeds %d, what the store takes at once: make it several", size, MaxCommit)
	}
	return nil
}

func (o *Op) check() error {
	switch {
	case o.Prefix && !o.Delete:
		return fmt.Errorf("only a deletion is for all keys below %q", o.Key)
	case o.Key == "" && !o.Prefix:
		return errors.New("an operation has no key")
	case o.Delete && (o.Value != nil || o.Lease != nil):
		return fmt.Errorf("the deletion of %q has a value or lease", o.Key)
	case len(o.Value) > MaxValue:
		return fmt.Errorf("the value of %q has %d bytes, %d more than a value may have: split it", o.Key, len(o.Value), len(o.Value)-MaxValue)
	}
	return nil
}

// meets: other's key is o's, or below it.
func (o *Op) meets(other Op) bool {
	return o.Key == other.Key || o.Prefix && strings.HasPrefix(other.Key, o.Key)
}
