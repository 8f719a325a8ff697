package router

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	xdp "github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/kernel"
)

// linkPath is where the attachment to a device is pinned.
func (p *Plane) linkPath(index int) string {
	return filepath.Join(p.o.PinDir, dirLinks, "xdp-"+strconv.Itoa(index))
}

// AttachError is Apply's where everything is in force but that the program is
// not on some devices: packets that come in there are the kernel's. The next
// Apply tries again.
type AttachError struct {
	Devices []string // in alphabetical order
	Err     error    // of the first of them, which it names
}

func (e *AttachError) Error() string {
	if len(e.Devices) == 1 {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v; not on %s either", e.Err, strings.Join(e.Devices[1:], ", "))
}

func (e *AttachError) Unwrap() error { return e.Err }

// attach brings the program into force on these devices (by index; names are
// for errors). A link that is there has its program replaced, which loses no
// packet. Where one device fails, the others are attached all the same: the
// error is an *AttachError.
func (p *Plane) attach(devices map[int]string) error {
	if p.links == nil {
		p.links = map[int]xdp.Link{}
	}
	failed := map[string]error{}
	for index, name := range devices {
		if l := p.links[index]; l != nil {
			if on, err := linkOf(l); err != nil || on == index {
				// Not known: it is looked at again.
				if err := p.repin(l, index); err != nil {
					failed[name] = err
				}
				continue
			}
			// Somebody detached it, or its device went and another has the index.
			l.Close()
			delete(p.links, index)
		}
		l, err := p.attachOne(index, name)
		if err != nil {
			failed[name] = err
			continue
		}
		p.links[index] = l
	}
	if len(failed) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(failed))
	return &AttachError{names, fmt.Errorf("interface %s: %w", names[0], failed[names[0]])}
}

// repin pins a link whose pin somebody removed: without it, the program would go
// with this process.
func (p *Plane) repin(l xdp.Link, index int) error {
	again, err := kernel.Repin(l, p.linkPath(index))
	if again {
		p.log.Warn("the pin of a link was removed, and is made again", "pin", p.linkPath(index))
	}
	return err
}

func (p *Plane) attachOne(index int, name string) (xdp.Link, error) {
	path := p.linkPath(index)
	// A process that was killed between pinning and renaming leaves this.
	_ = os.Rename(path+kernel.PinNew, path)
	l, err := xdp.LoadPinnedLink(path, nil)
	on := 0
	if err == nil {
		if on, err = linkOf(l); err != nil {
			l.Close()
		}
	}
	switch {
	case err == nil && on == index:
		return p.replace(l, path)
	case err == nil: // the device is gone, or somebody detached it
		l.Close()
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open the pinned link: %w", err)
	}
	if l, err = kernel.AttachXDP(p.set.program, index, name, kernel.Patience, p.log); err != nil {
		return nil, err
	}
	if err := kernel.Replace(l, path); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// replace has a link run this build's program. Where that fails, the one before
// is taken away: nothing of what it goes by is kept up any more.
func (p *Plane) replace(l xdp.Link, path string) (xdp.Link, error) {
	err := l.Update(p.set.program)
	if err == nil {
		return l, nil
	}
	defer l.Close()
	if err := kernel.Detach(l, path); err != nil {
		return nil, fmt.Errorf("take the program of another build away: %w", err)
	}
	return nil, fmt.Errorf("replace the program: %w", err)
}

// detachOthers takes the program away from devices that are not among these.
func (p *Plane) detachOthers(devices map[int]string) error {
	return kernel.Each(filepath.Join(p.o.PinDir, dirLinks), func(pin, path string) error {
		index, err := strconv.Atoi(strings.TrimPrefix(pin, "xdp-"))
		if _, keep := devices[index]; err == nil && keep {
			return nil
		}
		l := p.links[index]
		delete(p.links, index)
		if l == nil {
			if l, err = xdp.LoadPinnedLink(path, nil); err != nil {
				return err
			}
		}
		defer l.Close()
		p.log.Info("detached from a device that nothing is routed from any more", "link", pin)
		return kernel.Detach(l, path)
	})
}

// linkOf is the index of the device that a link is at; 0: at none any more.
func linkOf(l xdp.Link) (int, error) {
	at, err := kernel.Where(l)
	return int(at), err
}
