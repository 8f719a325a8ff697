package daemon

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/controller"
)

// Beside its programs a daemon pins which assignment and which clock they go by, as
// a symbolic link, which bpffs takes: it is there for as long as they are, whatever
// becomes of the disk, and is replaced in one step.
//
//	PIN_DIR/force -> VERSION-DIGEST-CLOCK-CRC
//
// With it a daemon that starts can tell a state folder that is older than what is
// in force, or another one, from its own, and a clock in the maps that is not the
// one that was fixed. All else in the maps it fills anew.

const forceName = "force"

// pinsPrograms is a plane whose programs are pinned.
type pinsPrograms interface {
	pinDir() string
	// restoreClock puts the base back that was fixed in this boot.
	restoreClock(base uint32) error
}

// forcePin is where that is pinned; empty: nowhere.
func (d *daemon) forcePin() string {
	if p, ok := d.plane.(pinsPrograms); ok && p.pinDir() != "" {
		return filepath.Join(p.pinDir(), forceName)
	}
	return ""
}

// pinnedForce is the assignment that the programs went by when this daemon
// started; the zero value: not known, or there are none.
type pinnedForce struct {
	version uint64
	digest  []byte
	clock   uint32 // base
}

func (d *daemon) readPinned() (p pinnedForce) {
	path := d.forcePin()
	if path == "" {
		return p
	}
	text, err := os.Readlink(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p // nothing is pinned, or by a build before this
	}
	var version uint64
	var digest string
	var clock uint32
	if err == nil {
		if _, err = fmt.Sscanf(text, "%d-%64s-%d", &version, &digest, &clock); err == nil && forceText(version, digest, clock) != text {
			err = errors.New("its checksum is wrong")
		}
	}
	if err != nil {
		d.log.Error("which assignment the programs went by is not known: what says so is damaged", "pin", path, "error", err)
		return p
	}
	p.version, p.clock = version, clock
	p.digest, _ = hex.DecodeString(digest) // as it was written
	return p
}

func forceText(version uint64, digest string, clock uint32) string {
	text := fmt.Sprintf("%d-%s-%d", version, digest, clock)
	return fmt.Sprintf("%s-%08x", text, crc32.ChecksumIEEE([]byte(text)))
}

// writePinned says what packets go by from now on. It comes after the maps: a
// daemon killed in between finds what was before, and newer ones on disk.
func (d *daemon) writePinned(version uint64, digest []byte) {
	path := d.forcePin()
	if path == "" {
		return
	}
	next := path + "+new"
	err := os.Remove(next) // of a daemon that was killed here
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Symlink(forceText(version, hex.EncodeToString(digest), d.clock.Load().base), next)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		d.log.Warn("which assignment the programs go by could not be noted beside them: a restart trusts the disk alone", "error", err)
	}
}

// trueClock is the base that is pinned, or where that is not the one that was fixed
// in this boot, that one, put back.
func (d *daemon) trueClock(pinned uint32) uint32 {
	if d.pinned.version == 0 || d.pinned.clock == pinned {
		return pinned
	}
	text := fmt.Sprintf("the clock in the pinned maps was damaged (%d where %d was fixed) and is put back: see who writes there", pinned, d.pinned.clock)
	if err := d.plane.(pinsPrograms).restoreClock(d.pinned.clock); err != nil {
		text = fmt.Sprintf("the clock in the pinned maps is damaged and cannot be put back: %v", err)
	}
	d.state.warn(text)
	return d.pinned.clock
}

// contradicts says that a, which is on disk, is not what was put in force under
// its version.
func (p pinnedForce) contradicts(a *controller.Assignment) bool {
	return a != nil && a.Version == p.version && !bytes.Equal(digest(a.Encode()), p.digest)
}

// mayReplace refuses to put a in force, the newest of disk, peers and (first) the
// configuration, where the programs at work go by a newer one, or by one that
// nobody has any more: its slots and keys may be others, so that living
// connections would break. They go on forwarding until somebody answers.
func (d *daemon) mayReplace(p pinnedForce, a *controller.Assignment, first bool) error {
	adopted := d.clock.Load().source == clockPinned || d.me.role == RoleSwitch
	what := ""
	switch {
	case p.version > a.Version:
		what = fmt.Sprintf("version %d", p.version)
	case !first:
		return nil
	case p.version == 0 && adopted && d.state.lost(assignmentName):
		what = "what " + d.state.assignmentFile() + " said before it was damaged"
	case p.version > 0 && p.contradicts(a):
		what = fmt.Sprintf("another version %d", p.version)
	default:
		return nil
	}
	newest := fmt.Sprintf("on disk is version %d", a.Version)
	if first {
		newest = "there is none on disk, and version 1 of the configuration may give connections to others"
	}
	return fmt.Errorf("what forwards goes by %s, %s, and no peer that answers has it: nothing was changed, and it goes on forwarding; "+
		"start this daemon again when a peer answers (systemd does), or, if its connections may break, take everything out by fairlead unload and start it", what, newest)
}
