// Package built has the three programs for tests that run them: built once for all
// packages' tests, as long as nothing changes, in a cache of the user's.
package built

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// linkFlags are those of `make build`, so that sizes are.
const linkFlags = "-ldflags=-w"

// Fairlead is the path of the program fairlead; fairleadctl and fairlead-lab are beside it.
func Fairlead(t testing.TB) string {
	t.Helper()
	folder, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, "fairlead")
}

var programs = sync.OnceValues(func() (string, error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Dir(strings.TrimSpace(string(module)))
	name := fnv.New64a()
	name.Write([]byte(root))
	folder := filepath.Join(cache, "fairlead-test", fmt.Sprintf("%x", name.Sum64()))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	// Tests of several packages run at a time; the first builds. To those after
	// it, go sees that what is there is of these sources, and links nothing.
	lock, err := os.Create(filepath.Join(folder, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	for _, args := range [][]string{{"-o", folder + "/", "./cmd/fairlead", "./cmd/fairlead-lab"}, {"-tags", "ctl", "-o", folder + "/fairleadctl", "./cmd/fairlead"}} {
		build := exec.Command("go", append([]string{"build", "-trimpath", linkFlags}, args...)...)
		build.Dir = root
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
	}
	return folder, nil
})
