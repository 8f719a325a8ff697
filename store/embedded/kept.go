package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// keptEvery is how often a member looks whether its folder is still there.
const keptEvery = 2 * time.Second

// held is what of the folder is the same for as long as a member runs. Of the values'
// file only the name is: etcd puts a smaller one, or the leader's, in its place.
type held map[string]os.FileInfo

// hold remembers the folder as it is.
func (s *Server) hold() error {
	s.held = held{}
	for _, name := range []string{"lock", filepath.Join("member", "wal")} {
		info, err := os.Stat(filepath.Join(s.o.Dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist): // while it started
			return s.gone(name, "deleted")
		case err != nil:
			return fmt.Errorf("the store's folder: %w", err)
		}
		s.held[name] = info
	}
	return nil
}

// kept is an error once somebody has deleted the member's folder, moved it away or put
// another in its place. The kernel keeps deleted files for who has them open, so that
// etcd would go on acknowledging what the next start does not find. A folder that cannot
// be looked at is no such thing.
func (s *Server) kept() error {
	for name, was := range s.held {
		switch is, err := os.Stat(filepath.Join(s.o.Dir, name)); {
		case errors.Is(err, os.ErrNotExist):
			return s.gone(name, "deleted")
		case err == nil && !os.SameFile(was, is):
			return s.gone(name, "replaced")
		}
	}
	db := filepath.Join("member", "snap", "db")
	if _, err := os.Stat(filepath.Join(s.o.Dir, db)); errors.Is(err, os.ErrNotExist) {
		// While the leader's replaces it, it has no name for a moment.
		time.Sleep(keptEvery / 4)
		if _, err := os.Stat(filepath.Join(s.o.Dir, db)); errors.Is(err, os.ErrNotExist) {
			return s.gone(db, "deleted")
		}
	}
	return nil
}

// Lost gives one error, if the member's folder goes while it runs: it must be closed
// then, for it keeps nothing any more. It is looked at every 2 s.
func (s *Server) Lost() <-chan error {
	lost := make(chan error, 1)
	go func() {
		tick := time.NewTicker(keptEvery)
		defer tick.Stop()
		for {
			select {
			case <-s.Done():
				return
			case <-tick.C:
			}
			if err := s.kept(); err != nil {
				lost <- err
				return
			}
		}
	}()
	return lost
}

func (s *Server) gone(name, how string) error {
	return fmt.Errorf("the store's folder was %s while it was in use (%s): what is written now would be lost with this process, so it ends; started again, it takes its place if others have the store, and begins anew if not (`fairlead apply`)",
		how, filepath.Join(s.o.Dir, name))
}
