package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/fabric"
)

// A switch keeps on disk, in the daemon's folder, whether it is drained and
// whether it locked itself.

// drain withdraws the announced routes or announces them again. On disk first,
// so that a switch that is killed in between does what it was told when it
// starts again.
func (p *switchPlane) drain(drained bool) (changes []string, err error) {
	was, err := p.remember(drained)
	if err != nil {
		return nil, err
	}
	if changes, err = p.sw.Drain(drained); err != nil {
		_, back := p.remember(was)
		return nil, errors.Join(err, back)
	}
	return changes, nil
}

// remember keeps on disk whether the switch is drained.
func (p *switchPlane) remember(drained bool) (was bool, err error) {
	path := filepath.Join(p.state, drainedName)
	_, err = os.Stat(path)
	was = err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
	case was == drained:
		return was, nil
	case drained:
		err = os.WriteFile(path, nil, 0o600)
	default:
		err = os.Remove(path)
	}
	if err == nil {
		err = syncDir(p.state)
	}
	if err != nil {
		return was, fmt.Errorf("keep on disk whether the switch is drained: %w", err)
	}
	return was, nil
}

func (p *switchPlane) unlock() ([]string, error) { return p.sw.Unlock() }

// readLock is the lock that keepLock wrote, nil if there is none.
func readLock(path string) (*fabric.Lock, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	l := new(fabric.Lock)
	if err == nil {
		err = json.Unmarshal(text, l)
	}
	if err != nil {
		return nil, fmt.Errorf("read whether the switch is locked: %w; if it is to follow its servers' health, remove %s", err, path)
	}
	return l, nil
}

// keepLock writes l into the folder, whole or not at all; nil: there is none.
func keepLock(state string, l *fabric.Lock) error {
	path := filepath.Join(state, lockedName)
	var err error
	if l == nil {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	} else {
		var text []byte
		if text, err = json.Marshal(l); err == nil {
			err = os.WriteFile(path+".new", text, 0o600)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err == nil {
		err = syncDir(state)
	}
	if err != nil {
		return fmt.Errorf("keep on disk whether the switch is locked: %w", err)
	}
	return nil
}
