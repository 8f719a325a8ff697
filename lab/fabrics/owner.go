package fabrics

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/lab/netspace"
)

// claim makes the fabric's folder, with the process that owns it in it; and
// takes down fabrics whose owners are gone.
func (f *Fabric) claim() error {
	if err := os.MkdirAll(Root, 0o755); err != nil {
		return err
	}
	RemoveStale()
	if err := os.Mkdir(f.Dir(), 0o700); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("a fabric %q is there already, of a process that runs", f.Name)
	} else if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.Dir(), "owner"), []byte(owner(os.Getpid())), 0o600)
}

// RemoveStale takes down the fabrics whose owners are gone. Errors are left to
// the next attempt.
func RemoveStale() {
	entries, _ := os.ReadDir(Root)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(Root, e.Name(), "owner"))
		var pid int
		if err != nil {
			continue // being made just now
		}
		if _, err := fmt.Sscan(string(data), &pid); err == nil && owner(pid) != string(data) {
			_ = Down(e.Name())
		}
	}
}

// owner is a process's number and start time, which tells it from a later one
// with its number.
func owner(pid int) string {
	start := netspace.ProcessStart(pid)
	if start == "" {
		return ""
	}
	return fmt.Sprint(pid, " ", start)
}
