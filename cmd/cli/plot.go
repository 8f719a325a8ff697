package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckPlot refuses a --plot that cannot be written, before anything is done.
func CheckPlot(file string) error {
	if file == "" {
		return nil
	}
	if !strings.EqualFold(filepath.Ext(file), ".svg") {
		return Usagef("--plot %q: must be named *.svg, as it is one", file)
	}
	if isDirectory(file) {
		return Usagef("--plot %q: is a directory; name a file in it", file)
	}
	dir := filepath.Dir(file)
	if !isDirectory(dir) {
		return Usagef("--plot %q: there is no directory %q; make it first", file, dir)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return Usagef("--plot %q: cannot write to directory %q: %w", file, dir, err)
	}
	return nil
}

func isDirectory(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// WritePlot draws to memory and to a file beside, so that an error leaves no
// half plot and an older one as it was.
func WritePlot(file string, draw func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	var b bytes.Buffer
	if err := draw(&b); err != nil {
		return err
	}
	beside, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".unfinished-")
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	_, err = beside.Write(b.Bytes())
	err = errors.Join(err, beside.Chmod(0o644), beside.Close())
	if err == nil {
		err = os.Rename(beside.Name(), file)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("--plot: %w", err), os.Remove(beside.Name()))
	}
	return nil
}
