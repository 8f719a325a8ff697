package daemon

import (
	"cmp"
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

	"github.com/fairlead/fairlead/daemon/kept"
	"github.com/fairlead/fairlead/sealed"
)

// DefaultStateDir holds a folder a daemon.
const DefaultStateDir = kept.DefaultStateDir

// State is a daemon's folder on disk, with the lock that keeps a second daemon of
// the same name out.
//
// Every file is sealed. One that is not whole is never used: it is set aside, and
// the daemon says so and goes on without. A disk that takes nothing stops nobody
// either: what was to be written is written as soon as it can be.
type State struct {
	path        string
	unsavedText string
	log         *slog.Logger
	locks       []*os.File

	disk    sync.Mutex // one writes at a time, so that what was said last stands last
	soon    sync.WaitGroup
	closing chan struct{} // closed by Close
	closed  sync.Once

	mu      sync.Mutex
	written map[string][sha256.Size]byte // what each file is known to hold
	unsaved map[string]unsaved           // what the disk did not take, by file
	damaged []string                     // what was set aside, for people
	useless map[string]bool              // files that are damaged
	said    map[string]uint64            // how often each file was to be written or removed
	later   []later                      // what is to be written in the background
}

type unsaved struct {
	data []byte
	err  error
}

// OpenState makes the folder where it is missing, under base or else
// DefaultStateDir, and takes its lock. The kernel drops the lock when the process
// ends, however it ends. unsaved is a warning while the disk takes nothing: what
// that means, with %s for why.
func OpenState(base, name, unsaved string, log *slog.Logger) (*State, error) {
	path := filepath.Join(cmp.Or(base, DefaultStateDir), name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w; run as root, or choose another with --state-dir", err)
	}
	s := &State{path: path, unsavedText: unsaved, log: log, closing: make(chan struct{})}
	if err := s.takeLock(name); err != nil {
		return nil, errors.Join(err, s.Close())
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
func (s *State) takeLock(name string) error {
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

// asideSuffix ends the name of a file that was set aside; the second has -2 behind
// it, and so on.
const asideSuffix = ".damaged"

// Path is where the file called name is, or would be.
func (s *State) Path(name string) string { return filepath.Join(s.path, name) }

// Parse hands a file's content to decode, unless there is none, or none that is
// whole: that one is set aside. The error is of a file that could not be read,
// which may be whole, or of one that is and that decode does not take, as a later
// build wrote it; for that one there is a remedy.
func (s *State) Parse(name, remedy string, decode func([]byte) error) error {
	data, isSealed, err := kept.Open(s.Path(name))
	switch {
	case errors.Is(err, sealed.ErrDamaged):
		s.SetAside(name, err)
		return nil
	case err != nil:
		return fmt.Errorf("%w: the file stays as it is; see to that, and start again", err)
	case data == nil:
		return nil
	}
	if err := decode(data); err != nil {
		if isSealed {
			return fmt.Errorf("%s: %w%s", s.Path(name), err, remedy)
		}
		s.SetAside(name, err)
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

// Read is a file's content as it is, damaged or not; nil for no file.
func (s *State) Read(name string) ([]byte, error) {
	data, _, err := kept.Open(s.Path(name))
	return data, err
}

// SetAside renames a file that is not to be used, for whoever wants to know what
// happened to it, and says so.
func (s *State) SetAside(name string, why error) {
	path := s.Path(name)
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
	s.Warn(text)
}

// Warn says what of this daemon's state is damaged, until it is started again.
func (s *State) Warn(text string) {
	s.mu.Lock()
	s.damaged = append(s.damaged, text)
	s.mu.Unlock()
	s.log.Error("this daemon's state is damaged", "warning", text)
}

// Lost says that a file is missing because it was damaged, now or when the daemon
// was last started.
func (s *State) Lost(name string) bool {
	path := s.Path(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.useless[name] || !exists(path) && exists(path+asideSuffix)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Marked says whether the file called name is there.
func (s *State) Marked(name string) (bool, error) {
	_, err := os.Lstat(s.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Mark makes the empty file called name, or removes it; was says whether it was
// there.
func (s *State) Mark(name string, is bool) (was bool, err error) {
	was, err = s.Marked(name)
	switch {
	case err != nil || was == is:
		return was, err
	case is:
		err = os.WriteFile(s.Path(name), nil, 0o600)
	default:
		err = os.Remove(s.Path(name))
	}
	if err == nil {
		err = syncDir(s.path)
	}
	return was, err
}

// Write replaces a file; after a crash at any moment it is the old or the new
// one, whole. It may hold keys: mode 0600.
func (s *State) Write(name string, data []byte) error {
	s.say(name)
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.put(name, data)
}

// Keep is Write, where things go on all the same if the disk takes nothing: it is
// tried until it does (run). Nothing is written that is on disk already.
func (s *State) Keep(name string, data []byte) error {
	s.say(name)
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.keep(name, data)
}

// keep is Keep; the caller holds disk.
func (s *State) keep(name string, data []byte) error {
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

// Remove takes a file away, and forgets what was to be written there.
func (s *State) Remove(name string) error {
	s.say(name)
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.remove(name)
}

// remove is Remove; the caller holds disk.
func (s *State) remove(name string) error {
	s.mu.Lock()
	delete(s.written, name)
	delete(s.unsaved, name)
	s.mu.Unlock()
	err := os.Remove(s.Path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(s.path)
	}
	return err
}

// isOnDisk: the file holds data, and nothing is to be written there.
func (s *State) isOnDisk(name string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == nil {
		s.written = map[string][sha256.Size]byte{}
	}
	s.written[name] = sha256.Sum256(data)
	delete(s.unsaved, name)
	delete(s.useless, name)
}

// put is Write; the caller holds disk.
func (s *State) put(name string, data []byte) error {
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
		err = os.Rename(temp.Name(), s.Path(name))
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
func (s *State) run(ctx context.Context) error {
	for Sleep(ctx, saveInterval) {
		s.Retry()
	}
	return nil
}

// Retry asks the disk once more to take what it did not.
func (s *State) Retry() {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.Lock()
	waiting := maps.Clone(s.unsaved) // the newest: nobody writes meanwhile
	s.mu.Unlock()
	for name, u := range waiting {
		if s.put(name, u.data) == nil {
			s.log.Info("the disk takes this daemon's state again", "file", name)
		}
	}
}

// Counts is how many files are not on disk as they should be, and how many were
// damaged since the daemon started.
func (s *State) Counts() (waiting, damaged int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unsaved), len(s.damaged)
}

// Warnings says what is not as it should be on disk.
func (s *State) Warnings() (warnings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	warnings = slices.Clone(s.damaged)
	for _, name := range slices.Sorted(maps.Keys(s.unsaved)) {
		warnings = append(warnings, fmt.Sprintf(s.unsavedText, s.unsaved[name].err)+"; make room, it is tried every second")
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

// Close lets the folder go, when what is to be written soon is written.
func (s *State) Close() (err error) {
	s.closed.Do(func() { close(s.closing) })
	s.soon.Wait()
	for _, f := range s.locks {
		err = errors.Join(err, f.Close())
	}
	return err
}
