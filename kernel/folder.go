package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Folders in a daemon's folder.
const (
	DirMaps     = "maps"
	DirPrograms = "programs"
	DirLinks    = "links"
)

// Folder is what one daemon, and no other at a time, keeps in bpffs, with the links
// there that it holds open. Its life:
//
//	Claim ──▶ Hold … Hold ──▶ Settle ──▶ (Hold, Keep: put back what is missing) ──▶ Close
//	               │
//	               └── the start fails: Abandon
//
// After Close all stays pinned and attached; Unload ends that.
type Folder struct {
	Dir string
	// Fresh: nothing in it is in force, so that Abandon removes it. Claim sets it
	// where there was no folder.
	Fresh bool

	log     *slog.Logger
	lock    *os.File
	links   map[string]link.Link // held, by their pins' names
	undo    []undo
	settled bool
}

// PinDir is the folder of the daemon of the given name, which is a balancer or a
// router; dir, if that is chosen.
func PinDir(what, name, dir string) (string, error) {
	switch {
	case dir != "":
		return dir, nil
	case strings.ContainsAny(name, "/:"):
		return "", fmt.Errorf("%s name %q: it names a folder of pins; use letters, digits, dots and dashes", what, name)
	}
	return Dir(name), nil
}

// Claim makes dir, if it is not there, and takes it for this process.
func Claim(dir string, log *slog.Logger) (*Folder, error) {
	if err := Ensure(dir); err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir, Fresh: Missing(dir), log: log, links: map[string]link.Link{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pin folder: %w", err)
	}
	var err error
	if f.lock, err = Lock(dir); err != nil {
		return nil, err
	}
	return f, nil
}

// Abandon undoes what was done since Claim, as the start failed. What a daemon
// before had in force is so again.
func (f *Folder) Abandon() {
	f.Undo()
	if f.Fresh {
		_ = os.RemoveAll(f.Dir)
	}
}

// Close lets go of the folder and of what is held; that stays pinned and attached.
func (f *Folder) Close() {
	f.forget()
	for _, l := range f.links {
		l.Close()
	}
	f.links = nil
	f.lock.Close()
}

// Keep makes the pins of a set below dir that somebody removed, and the folder.
func (f *Folder) Keep(s *Set, dir string) error {
	if err := f.relock(); err != nil {
		return err
	}
	for name, m := range s.Maps {
		if err := keep(m, filepath.Join(dir, DirMaps, name), f.log); err != nil {
			return err
		}
	}
	for name, p := range s.Programs {
		if err := keep(p, filepath.Join(dir, DirPrograms, name), f.log); err != nil {
			return err
		}
	}
	return nil
}

func keep[T interface {
	Pinner
	Close() error
}](object interface{ Clone() (T, error) }, path string, log *slog.Logger) error {
	if !Missing(path) {
		return nil
	}
	log.Warn("a pin was removed, and is made again", "pin", path)
	return PinClone(object, path)
}

// relock locks the folder again where it was removed and made anew, so that there
// is still one process at a time.
func (f *Folder) relock() error {
	was, err := f.lock.Stat()
	if err != nil {
		return err
	}
	if is, err := os.Stat(f.Dir); err == nil && os.SameFile(was, is) {
		return nil
	}
	if err := Ensure(f.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	again, err := Lock(f.Dir)
	if err != nil {
		return err
	}
	f.lock.Close()
	f.lock = again
	return nil
}

// Unload detaches what is attached by links pinned under dir, then takes the steps
// of also, and removes the folder. Nothing pinned is no error.
func Unload(dir string, also ...func() error) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !On(dir) {
		return fmt.Errorf("%s is not on a bpffs; name the folder that fairlead status calls pin_dir", dir)
	}
	lock, err := Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	f := &Folder{Dir: dir}
	if err := Each(filepath.Join(dir, DirLinks), func(pin, _ string) error { return f.Drop(pin) }); err != nil {
		return fmt.Errorf("unload: %w", err)
	}
	var errs []error
	for _, step := range also {
		errs = append(errs, step())
	}
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

// Running is the id of the program that the XDP links pinned under dir run; 0: none.
// A process that was killed while it switched them leaves two: either will do. A link
// that is at no device any more says what ran last.
func Running(dir string) (id ebpf.ProgramID, err error) {
	live := false
	err = Each(filepath.Join(dir, DirLinks), func(_, path string) error {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		defer l.Close()
		info, err := l.Info()
		if err != nil || info.XDP() == nil || live {
			return err
		}
		id, live = info.Program, info.XDP().Ifindex != 0
		return nil
	})
	return id, err
}
