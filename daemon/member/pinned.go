package member

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/kernel"
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

// forcePin is where that is pinned; empty: nowhere.
func (m *Member) forcePin() string {
	if m.opened.PinDir != "" {
		return filepath.Join(m.opened.PinDir, forceName)
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

func (m *Member) readPinned() (p pinnedForce) {
	path := m.forcePin()
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
		m.Log.Error("which assignment the programs went by is not known: what says so is damaged", "pin", path, "error", err)
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

// writePinned says what packets go by from now on. It comes before the maps, and after a
// start behind them: a daemon killed in between finds the newer of both there, or on disk.
func (m *Member) writePinned(version uint64, digest []byte) {
	if path := m.forcePin(); path != "" {
		if err := makeForce(path, m.forceText(version, digest)); err != nil {
			m.Log.Warn("which assignment the programs go by could not be noted beside them: a restart trusts the disk alone", "error", err)
		}
	}
}

func (m *Member) forceText(version uint64, digest []byte) string {
	return forceText(version, hex.EncodeToString(digest), m.clock.Load().base)
}

// makeForce makes path a link to text, in one step.
func makeForce(path, text string) error {
	next := path + "+new"
	err := os.Remove(next) // of a daemon that was killed here
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Symlink(text, next)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	return err
}

// tendEvery is how long the pin can be missing before it is made again, as those of a
// balancer are by their room.
const tendEvery = kernel.PinsEvery

func (m *Member) tendPinned(ctx context.Context) error {
	path := m.forcePin()
	if path == "" {
		return nil
	}
	for told := ""; daemon.Sleep(ctx, tendEvery); {
		err := m.putBackPinned(path)
		if err == nil {
			told = ""
		} else if told != err.Error() {
			told = err.Error()
			m.Log.Error("which assignment the programs go by cannot be noted beside them; trying on", "error", err)
		}
	}
	return nil
}

// putBackPinned looks once, and puts back what somebody removed or changed, or what
// could not be written. A folder that is gone is the plane's to make.
func (m *Member) putBackPinned(path string) error {
	m.mu.Lock() // so that what is in force and what is pinned are of one moment
	defer m.mu.Unlock()
	force := m.force.Load()
	text := m.forceText(force.Version, force.digest)
	if is, err := os.Readlink(path); err == nil && is == text || gone(filepath.Dir(path)) {
		return nil
	}
	if err := makeForce(path, text); err != nil {
		return err
	}
	m.Log.Warn("what says which assignment the programs go by was removed or changed, and is made again", "pin", path)
	return nil
}

func gone(folder string) bool {
	_, err := os.Lstat(folder)
	return err != nil
}

// trueClock is the base that is pinned, or where that is not the one that was fixed
// in this boot, that one, put back.
func (m *Member) trueClock(pinned uint32) uint32 {
	if m.pinned.version == 0 || m.pinned.clock == pinned {
		return pinned
	}
	text := fmt.Sprintf("the clock in the pinned maps was damaged (%d where %d was fixed) and is put back: see who writes there", pinned, m.pinned.clock)
	if err := m.opened.Clock.RestoreClock(m.pinned.clock); err != nil {
		text = fmt.Sprintf("the clock in the pinned maps is damaged and cannot be put back: %v", err)
	}
	m.State.Warn(text)
	return m.pinned.clock
}

// contradicts says that a, which is on disk, is not what was put in force under
// its version. A build before this pinned the text's digest, of a large one too.
func (p pinnedForce) contradicts(a *controller.Assignment) bool {
	if a == nil || a.Version != p.version {
		return false
	}
	sum := a.Digest()
	if !bytes.Equal(sum[:], p.digest) && a.Large() {
		sum = a.TextDigest()
	}
	return !bytes.Equal(sum[:], p.digest)
}

// mayReplace refuses to put a in force, the newest of disk, store and peers, from
// source, where the programs at work go by a newer one: its slots and keys may be
// others, so that living connections would break. They go on forwarding until somebody
// who has it answers.
func (m *Member) mayReplace(p pinnedForce, a *controller.Assignment, source string) error {
	if p.version <= a.Version {
		return nil
	}
	return fmt.Errorf("what forwards goes by version %d, the newest that was found is version %d (from %s), and no peer that answers has it: nothing was changed, and it goes on forwarding; "+
		"start this daemon again when the store or a peer answers (systemd does), or, if its connections may break, take everything out by fairlead unload and start it", p.version, a.Version, source)
}
