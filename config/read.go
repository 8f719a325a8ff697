package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Bounds of files, in bytes: far above what a deployment needs, and low enough
// that a wrong path does not fill the memory.
const (
	maxFile   = 4 << 20
	maxSecret = 4 << 10
)

// unfit is the error of a file that is there, but is not what may be read.
type unfit struct{ wrong, remedy string }

func (u *unfit) Error() string { return u.wrong }

// readFile is the content of the regular file at path, after symbolic links,
// and its mode. A FIFO would block a daemon for ever and a device might never
// end: they are unfit, and so is a file of more than limit bytes.
func readFile(path string, limit int64) ([]byte, fs.FileMode, error) {
	// Before it is opened, as opening a device may have effects.
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if err := regular(info); err != nil {
		return nil, 0, err
	}
	// It may have become a FIFO meanwhile: do not wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, 0, err
	}
	if err := regular(info); err != nil {
		return nil, 0, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, 0, err
	}
	if int64(len(data)) > limit {
		size := fmt.Sprintf("%d KiB", limit>>10)
		if limit >= 1<<20 {
			size = fmt.Sprintf("%d MiB", limit>>20)
		}
		return nil, 0, &unfit{"is larger than " + size, "see whether the path is right"}
	}
	return data, info.Mode(), nil
}

func regular(info fs.FileInfo) error {
	kind := "special file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "folder"
	case mode&fs.ModeNamedPipe != 0:
		kind = "FIFO"
	case mode&fs.ModeDevice != 0:
		kind = "device"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	}
	return &unfit{"is a " + kind + ", must be a regular file", "write the content to a file and name that"}
}
