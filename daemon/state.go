package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/sealed"
)

// DefaultStateDir holds a folder a daemon.
const DefaultStateDir = "/var/lib/fairlead"

// stateDir is a daemon's folder on disk: the assignment in force, on a balancer
// the same with its own times (controller.Follow) and what is known of servers'
// health, and the lock that keeps a second daemon of the same name out.
//
// Every file is sealed. One that is not whole is never used: it is set aside, and
// the daemon says so and goes on without. A disk that takes nothing stops nobody
// either: what was to be written is written as soon as it can be.
type stateDir struct {
	path  string
	log   *slog.Logger
	locks []*os.File

	disk sync.Mutex // one writes at a time, so that what was said last stands last

	mu      sync.Mutex
	written map[string][sha256.Size]byte // what each file is known to hold
	unsaved map[string]unsaved           // what the disk did not take, by file
	damaged []string                     // what was set aside, for people
	useless map[string]bool              // files that are damaged
}

type unsaved struct {
	data []byte
	err  error
}

// openState makes the folder where it is missing and takes its lock. The
// kernel drops the lock when the process ends, however it ends.
func openState(base, name string, log *slog.Logger) (*stateDir, error) {
	path := filepath.Join(base, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w; run as root, or choose another with --state-dir", err)
	}
	s := &stateDir{path: path, log: log}
	if err := s.takeLock(name); err != nil {
		return nil, errors.Join(err, s.close())
	}
	// What a daemon that was killed left half written.
	if left, err := filepath.Glob(filepath.Join(path, ".*-*")); err == nil {
		for _, file := range left {
			_ = os.Remove(file)
		}
	}
	return s, nil
}

// takeLock locks the folder, and the file in it that says who holds it. That one
// cannot be made on a disk that is full or read-only; the folder is there.
func (s *stateDir) takeLock(name string) error {
	file := filepath.Join(s.path, "lock")
	lock, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, syscall.EROFS) {
		lock, err = os.Open(file)
	}
	if err == nil {
		s.locks = append(s.locks, lock)
	} else if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("open lock: %w; run as root", err)
	}
	folder, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("open state folder: %w", err)
	}
	s.locks = append(s.locks, folder)
	for _, f := range s.locks {
		err := flock(f)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			held, _ := os.ReadFile(file)
			return fmt.Errorf("a daemon named %s runs already (process %s holds %s): stop it first, or start this one under another name or with another --state-dir",
				name, strings.TrimSpace(string(held)), f.Name())
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
	}
	// Of no other use than the message above.
	if lock != nil {
		if err := lock.Truncate(0); err == nil {
			_, _ = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
	}
	return nil
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
	healthName     = "health.json"
	// asideSuffix ends the name of a file that was set aside; the second has
	// -2 behind it, and so on.
	asideSuffix = ".damaged"
)

func (s *stateDir) assignmentFile() string { return filepath.Join(s.path, assignmentName) }

// ReadAssignment is the assignment that the daemon called name keeps on disk
// under base, for whoever looks while it runs; nil where there is none.
func ReadAssignment(base, name string) (*controller.Assignment, error) {
	s := stateDir{path: filepath.Join(base, name)}
	data, _, err := s.open(assignmentName)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s.assignmentFile(), err)
	}
	if data == nil {
		return nil, nil
	}
	return controller.Decode(data)
}

// load is the assignment on disk, nil where there is none that is whole.
func (s *stateDir) load() (*controller.Assignment, error) {
	return s.read(assignmentName, "; start a build that knows it, or move the file away and start again to take a peer's (where no peer answers, and what is pinned forwards: after fairlead unload)")
}

// loadOwn is it as this balancer carried it out; it may be of another version.
func (s *stateDir) loadOwn() (*controller.Assignment, error) { return s.read(ownName, "") }

func (s *stateDir) read(name, remedy string) (a *controller.Assignment, err error) {
	err = s.parse(name, remedy, func(data []byte) error {
		a, err = controller.Decode(data)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read assignment: %w", err)
	}
	return a, nil
}

// parse hands a file's content to decode, unless there is none, or none that is
// whole: that one is set aside. The error is of a file that could not be read,
// which may be whole, or of one that is and that decode does not take, as a later
// build wrote it; for that one there is a remedy.
func (s *stateDir) parse(name, remedy string, decode func([]byte) error) error {
	data, isSealed, err := s.open(name)
	switch {
	case errors.Is(err, sealed.ErrDamaged):
		s.setAside(name, err)
		return nil
	case err != nil:
		return fmt.Errorf("%w: the file stays as it is; see to that, and start again", err)
	case data == nil:
		return nil
	}
	if err := decode(data); err != nil {
		if isSealed {
			return fmt.Errorf("%s: %w%s", filepath.Join(s.path, name), err, remedy)
		}
		s.setAside(name, err)
		return nil
	}
	if isSealed {
		s.isOnDisk(name, data)
	} else { // it is to be written with its checksum
		s.mu.Lock()
		delete(s.written, name)
		s.mu.Unlock()
	}
	return nil
}

// open is a file's content; nil for no file.
func (s *stateDir) open(name string) (data []byte, isSealed bool, err error) {
	file, err := os.ReadFile(filepath.Join(s.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return sealed.Open(file)
}

// setAside renames a file that is not to be used, for whoever wants to know what
// happened to it, and says so.
func (s *stateDir) setAside(name string, why error) {
	path := filepath.Join(s.path, name)
	text := fmt.Sprintf("%s is damaged (%v) and is not used", path, why)
	aside := asideSuffix
	for n := 2; exists(path + aside); n++ { // each is kept
		aside = fmt.Sprintf("%s-%d", asideSuffix, n)
	}
	if err := os.Rename(path, path+aside); err != nil {
		text += fmt.Sprintf("; it could not be set aside: %v", err)
	} else {
		text += fmt.Sprintf("; it is set aside as %s%s: see to the disk, and who writes there", name, aside)
	}
	s.mu.Lock()
	if s.useless == nil {
		s.useless = map[string]bool{}
	}
	s.useless[name] = true
	delete(s.written, name)
	s.mu.Unlock()
	s.warn(text)
}

// warn says what of this daemon's state is damaged, until it is started again.
func (s *stateDir) warn(text string) {
	s.mu.Lock()
	s.damaged = append(s.damaged, text)
	s.mu.Unlock()
	s.log.Error("this daemon's state is damaged", "warning", text)
}

// lost says that a file is missing because it was damaged, now or when the daemon
// was last started.
func (s *stateDir) lost(name string) bool {
	path := filepath.Join(s.path, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.useless[name] || !exists(path) && exists(path+asideSuffix)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// save replaces the assignment; without must, as soon as the disk takes it.
func (s *stateDir) save(data []byte, must bool) error {
	if must {
		return s.write(assignmentName, data)
	}
	return s.keep(assignmentName, data)
}

func (s *stateDir) saveOwn(data []byte) error { return s.keep(ownName, data) }

// write replaces a file; after a crash at any moment it is the old or the new
// one, whole. It may hold keys: mode 0600.
func (s *stateDir) write(name string, data []byte) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.put(name, data)
}

// keep is write, where things go on all the same if the disk takes nothing: it is
// tried until it does (run). Nothing is written that is on disk already.
func (s *stateDir) keep(name string, data []byte) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	is, known := s.written[name]
	s.mu.Unlock()
	if known && is == sha256.Sum256(data) {
		s.isOnDisk(name, data)
		return nil
	}
	err := s.put(name, data)
	if err != nil {
		s.mu.Lock()
		if s.unsaved == nil {
			s.unsaved = map[string]unsaved{}
		}
		s.unsaved[name] = unsaved{data, err}
		s.mu.Unlock()
	}
	return err
}

// remove takes a file away, and forgets what was to be written there.
func (s *stateDir) remove(name string) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	delete(s.written, name)
	delete(s.unsaved, name)
	s.mu.Unlock()
	err := os.Remove(filepath.Join(s.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(s.path)
	}
	return err
}

// isOnDisk: the file holds data, and nothing is to be written there.
func (s *stateDir) isOnDisk(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil {
		s.written = map[string][sha256.Size]byte{}
	}
	s.written[name] = sha256.Sum256(data)
	delete(s.unsaved, name)
	delete(s.useless, name)
}

// put is write; the caller holds disk.
func (s *stateDir) put(name string, data []byte) error {
	temp, err := os.CreateTemp(s.path, "."+name+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	defer os.Remove(temp.Name()) // fails after the rename, as it should
	_, err = temp.Write(sealed.Seal(data))
	if err == nil {
		err = temp.Sync()
	}
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err == nil {
		// From here on the file may be the new one, also on an error.
		s.mu.Lock()
		delete(s.written, name)
		s.mu.Unlock()
		err = os.Rename(temp.Name(), filepath.Join(s.path, name))
	}
	if err == nil {
		err = syncDir(s.path)
	}
	if err != nil {
		return fmt.Errorf("save %s in %s: %w", name, s.path, err)
	}
	s.isOnDisk(name, data)
	return nil
}

// saveInterval is how long a disk that took nothing rests before it is asked again.
const saveInterval = time.Second

// run writes what the disk did not take, once it does.
func (s *stateDir) run(ctx context.Context) error {
	for sleep(ctx, saveInterval) {
		s.mu.Lock()
		waiting := maps.Clone(s.unsaved)
		s.mu.Unlock()
		for name := range waiting {
			s.retry(name)
		}
	}
	return nil
}

func (s *stateDir) retry(name string) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	u, waits := s.unsaved[name] // the newest: nobody writes meanwhile
	s.mu.Unlock()
	if waits && s.put(name, u.data) == nil {
		s.log.Info("the disk takes this daemon's state again", "file", name)
	}
}

// counts is how many files are not on disk as they should be, and how many were
// damaged since the daemon started.
func (s *stateDir) counts() (waiting, damaged int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unsaved), len(s.damaged)
}

// warnings says what is not as it should be on disk.
func (s *stateDir) warnings() (warnings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	warnings = slices.Clone(s.damaged)
	for _, name := range slices.Sorted(maps.Keys(s.unsaved)) {
		warnings = append(warnings, fmt.Sprintf("what is in force is not on disk (%v): a restart may begin from what was before; make room, it is tried every second", s.unsaved[name].err))
	}
	return warnings
}

// syncDir makes a rename in the folder survive a power cut. Tests have it fail.
var syncDir = func(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (s *stateDir) close() (err error) {
	for _, f := range s.locks {
		err = errors.Join(err, f.Close())
	}
	return err
}
