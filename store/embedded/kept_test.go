package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestFolderGone: a member whose folder is deleted, moved away or replaced says so; one
// whose file of values was made smaller does not.
func TestFolderGone(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(dir string) error
		says  string // "": nothing
	}{
		"deleted":    {os.RemoveAll, "deleted"},
		"moved away": {func(dir string) error { return os.Rename(dir, dir+"-away") }, "deleted"},
		"emptied":    {func(dir string) error { return os.RemoveAll(filepath.Join(dir, "member")) }, "deleted"},
		"no values":  {func(dir string) error { return os.Remove(filepath.Join(dir, "member", "snap", "db")) }, "deleted"},
		"another's": {func(dir string) error {
			if err := os.Rename(dir, dir+"-away"); err != nil {
				return err
			}
			return os.CopyFS(dir, os.DirFS(dir+"-away"))
		}, "replaced"},
		"smaller": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := alone(t)
			s := started(t, o)[0]
			lost := s.Lost()
			put(t, opened(t, o.Client[0]), "a", "b")
			if c.spoil == nil {
				if err := s.etcd.Server.Backend().Defrag(); err != nil {
					t.Fatal(err)
				}
				if err := s.kept(); err != nil {
					t.Error(err)
				}
				return
			}
			if err := c.spoil(o.Dir); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-lost:
				if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), o.Dir) {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("it goes on")
			}
		})
	}
}
