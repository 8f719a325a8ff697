package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

// fullDisk fills a process's disk; half of the time it is killed meanwhile, and starts
// on a disk that is full.
func (w *world) fullDisk(p lab.Process) fault {
	killed := w.random.IntN(2) == 0
	text := p.Name + "'s disk is full"
	if killed {
		text += ", and it is killed"
	}
	return fault{kind: "full disk", text: text, begin: func(context.Context) (func() error, error) {
		w.touch(p, damaged)
		filler := filepath.Join(w.lab.StateOf(p), "filler")
		err := fill(filler)
		if err == nil && killed {
			var start func() error
			if start, err = w.kill(p); err == nil {
				err = start()
			}
		}
		return func() error { return os.Remove(filler) }, err
	}}
}

// fill makes a file that takes all room.
func fill(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("fill a disk: %w", err)
	}
	defer f.Close()
	var size int64
	for step := int64(1 << 26); step >= 1<<12; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, step); {
		case err == nil:
			size += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		default:
			return fmt.Errorf("fill a disk: %w", err)
		}
	}
	return nil
}

// damage kills a process, and changes or cuts one of its files before it starts again.
func (w *world) damage(p lab.Process) fault {
	cut := w.random.IntN(2) == 0
	seed := w.random.Uint64()
	verb := "changed"
	if cut {
		verb = "cut"
	}
	return fault{kind: "damage", text: fmt.Sprintf("a file of %s is %s while it is down", p.Name, verb), begin: func(context.Context) (func() error, error) {
		w.touch(p, damaged)
		start, err := w.kill(p)
		if err == nil {
			err = spoil(w.lab.StateOf(p), rand.New(rand.NewPCG(seed, 1)), cut)
		}
		return start, err
	}}
}

// spoil changes bytes of a file below dir, or cuts it.
func spoil(dir string, random *rand.Rand, cut bool) error {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != "lock" && d.Name() != "filler" && !strings.Contains(d.Name(), ".damaged") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		return err
	}
	name := files[random.IntN(len(files))]
	info, err := os.Stat(name)
	if err != nil || info.Size() == 0 {
		return err
	}
	if cut {
		return os.Truncate(name, random.Int64N(info.Size()))
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for range 1 + random.IntN(8) {
		at := random.Int64N(info.Size())
		var b [1]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			return err
		}
		b[0] ^= byte(1 + random.IntN(255))
		if _, err := f.WriteAt(b[:], at); err != nil {
			return err
		}
	}
	return nil
}
