package yamlfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// MaxFile bounds a configuration file, in bytes: far above what a deployment
// needs, and low enough that a wrong path does not fill the memory.
const MaxFile = 4 << 20

// tooLarge is the remedy for a file that is larger than it may be.
const tooLarge = "see whether the path is right"

// Unfit is the error of a file that is there, but is not what may be read.
type Unfit struct{ Wrong, Remedy string }

func (u *Unfit) Error() string { return u.Wrong }

// ReadFile is the content of the configuration file at path, and what Exposed
// asks of it. Its error is Problems.
func ReadFile(path string) ([]byte, fs.FileInfo, error) {
	data, info, err := ReadBounded(path, MaxFile)
	if err == nil {
		return data, info, nil
	}
	wrong, remedy := Unread(err, "name the file with -f")
	if remedy == tooLarge {
		remedy += ", and write a list that repeats once, as &pool [s1, s2], and then as *pool"
	}
	return nil, nil, Problems{{File: path, Wrong: wrong, Remedy: remedy}}
}

// Exposed says what lets others than root and its owner, who must be root or who
// runs this, read or change the secret in the file at path, and the remedy; ""
// if nothing does. The mode is that of the file to which symbolic links lead.
func Exposed(path string, info fs.FileInfo) (wrong, remedy string) {
	if mode := info.Mode().Perm(); mode&0o066 != 0 {
		return fmt.Sprintf("others than its owner can read or change it (mode %04o)", mode), "chmod 600 " + path
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && int(s.Uid) != os.Geteuid() {
		return fmt.Sprintf("it belongs to user %d, who is neither root nor runs this", s.Uid), "chown root " + path
	}
	return "", ""
}

// Unread says why ReadBounded gave nothing, and the remedy: missing, unless the
// file is there and is another's, or is no file that may be read.
func Unread(err error, missing string) (wrong, remedy string) {
	if u, ok := errors.AsType[*Unfit](err); ok {
		return u.Wrong, u.Remedy
	}
	if errors.Is(err, fs.ErrPermission) {
		missing = "run as its owner or root"
	}
	return "cannot be read: " + Cause(err), missing
}

// ReadBounded is the content of the regular file at path, after symbolic links,
// and what it is. A FIFO would block a daemon for ever and a device might never
// end: they are Unfit, and so is a file of more than limit bytes.
func ReadBounded(path string, limit int64) ([]byte, fs.FileInfo, error) {
	// Before it is opened, as opening a device may have effects.
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := regular(info); err != nil {
		return nil, nil, err
	}
	// It may have become a FIFO meanwhile: do not wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if err := regular(info); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, nil, err
	}
	if int64(len(data)) > limit {
		size := fmt.Sprintf("%d KiB", limit>>10)
		if limit >= 1<<20 {
			size = fmt.Sprintf("%d MiB", limit>>20)
		}
		return nil, nil, &Unfit{"is larger than " + size, tooLarge}
	}
	return data, info, nil
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
	return &Unfit{"is a " + kind + ", must be a regular file", "write the content to a file and name that"}
}

// Cause is a file error without the path, which a message names already.
func Cause(err error) string {
	_, after, found := strings.Cut(err.Error(), ": ")
	if !found {
		return err.Error()
	}
	return after
}
