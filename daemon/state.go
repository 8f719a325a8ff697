package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/controller"
)

// DefaultStateDir holds a folder a daemon.
const DefaultStateDir = "/var/lib/fairlead"

// stateDir is a daemon's folder on disk: the assignment in force, on a balancer
// the same with its own times (controller.Follow), and the lock that keeps a
// second daemon of the same name out.
type stateDir struct {
	path string
	lock *os.File
}

// openState makes the folder where it is missing and takes its lock. The
// kernel drops the lock when the process ends, however it ends.
func openState(base, name string) (*stateDir, error) {
	path := filepath.Join(base, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w; run as root, or choose another with --state-dir", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w; run as root", err)
	}
	if err := flock(lock); err != nil {
		held, _ := os.ReadFile(lock.Name())
		lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("a daemon named %s runs already (process %s holds %s): stop it first, or start this one under another name or with another --state-dir",
				name, strings.TrimSpace(string(held)), lock.Name())
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	// Who holds it, for the message above; of no other use, so that a full disk
	// keeps nobody from starting.
	if err := lock.Truncate(0); err == nil {
		_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	// What a daemon that was killed left half written.
	if left, err := filepath.Glob(filepath.Join(path, ".*.json-*")); err == nil {
		for _, file := range left {
			_ = os.Remove(file)
		}
	}
	return &stateDir{path: path, lock: lock}, nil
}

// lockTime is how long a daemon that was just killed may take to be gone.
const lockTime = time.Second

// flock takes the lock, and while a dying daemon still holds it waits a moment.
func flock(f *os.File) error {
	for deadline := time.Now().Add(lockTime); ; time.Sleep(10 * time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
	}
}

const (
	assignmentName = "assignment.json"
	ownName        = "own.json"
)

func (s *stateDir) assignmentFile() string { return filepath.Join(s.path, assignmentName) }

// load is the assignment on disk, nil where there is none.
func (s *stateDir) load() (*controller.Assignment, error) { return s.read(assignmentName) }

// loadOwn is it as this balancer carried it out; it may be of another version.
func (s *stateDir) loadOwn() (*controller.Assignment, error) { return s.read(ownName) }

func (s *stateDir) read(name string) (*controller.Assignment, error) {
	path := filepath.Join(s.path, name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read assignment: %w", err)
	}
	a, err := controller.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("read assignment %s: %w; move the file away and start again to begin from the configuration or a peer",
			path, err)
	}
	return a, nil
}

// save replaces the assignment on disk; after a crash at any moment the file
// is the old or the new one, whole. It holds keys: mode 0600.
func (s *stateDir) save(data []byte) error { return s.write(assignmentName, data) }

func (s *stateDir) saveOwn(data []byte) error { return s.write(ownName, data) }

func (s *stateDir) write(name string, data []byte) error {
	temp, err := os.CreateTemp(s.path, "."+name+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	defer os.Remove(temp.Name()) // fails after the rename, as it should
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temp.Name(), filepath.Join(s.path, name))
	}
	if err == nil {
		err = syncDir(s.path)
	}
	if err != nil {
		return fmt.Errorf("save %s in %s: %w", name, s.path, err)
	}
	return nil
}

// syncDir makes a rename in the folder survive a power cut.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (s *stateDir) close() error { return s.lock.Close() }
