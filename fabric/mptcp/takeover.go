package mptcp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The settings that say who manages paths: the later kernels' and the earlier
// ones'. They are those of the network namespace of the thread that opens them.
const (
	pathManagerPath = "/proc/sys/net/mptcp/path_manager"
	availablePath   = "/proc/sys/net/mptcp/available_path_managers"
	pmTypePath      = "/proc/sys/net/mptcp/pm_type"
	enabledPath     = "/proc/sys/net/mptcp/enabled"
)

// runFolder holds a file for each network namespace in which paths are managed.
const runFolder = "/run/fairlead"

// RunFile is the file of a network namespace, by the number of its inode: who
// manages paths locks it, and writes there what the kernel's setting was, so
// that it is put back even if one manager was killed.
func RunFile(namespace uint64) string {
	return filepath.Join(runFolder, "mptcp-"+strconv.FormatUint(namespace, 10))
}

// Enabled tells whether programs can open connections of Multipath TCP. The
// error is ErrNoMPTCP for a kernel that has none.
func Enabled() (bool, error) {
	text, err := os.ReadFile(enabledPath)
	if errors.Is(err, fs.ErrNotExist) {
		return false, ErrNoMPTCP
	}
	if err != nil {
		return false, fmt.Errorf("whether Multipath TCP is enabled: %w", err)
	}
	return strings.TrimSpace(string(text)) != "0", nil
}

// setting says who manages the paths of connections that begin now.
type setting struct {
	path     string
	now      string
	programs string // what it says where programs do
	kernel   string // and where the kernel does, as when it starts
}

func readSetting() (s setting, err error) {
	s = setting{path: pathManagerPath, programs: "userspace", kernel: "kernel"}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		s.path, s.programs, s.kernel = pmTypePath, "1", "0"
	}
	text, err := os.ReadFile(s.path)
	if err != nil {
		return s, fmt.Errorf("which path manager the kernel has: %w", err)
	}
	s.now = strings.TrimSpace(string(text))
	return s, nil
}

// knows says whether value is one that the setting can have.
func (s setting) knows(value string) bool {
	if s.path == pmTypePath {
		return value == "0" || value == "1"
	}
	known, err := os.ReadFile(availablePath)
	return err == nil && slices.Contains(strings.Fields(string(known)), value)
}

func (s setting) write(value string) error {
	if err := os.WriteFile(s.path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s to %s: %w", s.path, value, err)
	}
	return nil
}

// office is that of the program that manages the paths of a network namespace.
type office struct {
	file   *os.File // locked
	before string   // the setting
}

// takeOver makes programs manage the paths of connections that begin from now
// on. It refuses where another one does so already.
func takeOver() (*office, error) {
	enabled, err := Enabled()
	if err != nil {
		return nil, err
	}
	if !enabled {
		return nil, errors.New("net.mptcp.enabled is 0: no program can open a connection of Multipath TCP; set it to 1")
	}
	file, err := lockNamespace()
	if err != nil {
		return nil, err
	}
	o := &office{file: file}
	if err := o.begin(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return o, nil
}

// lockNamespace opens the file of the calling thread's namespace.
func lockNamespace() (*os.File, error) {
	var namespace unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &namespace); err != nil {
		return nil, fmt.Errorf("find this network namespace: %w", err)
	}
	if err := os.MkdirAll(runFolder, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(RunFile(namespace.Ino), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New("another `fairlead mptcp` manages the paths of this network namespace; stop it first")
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (o *office) begin() error {
	s, err := readSetting()
	if err != nil {
		return err
	}
	o.before = s.now
	if s.now == s.programs {
		// One that was killed has left what the setting was.
		var left [64]byte
		n, _ := o.file.ReadAt(left[:], 0)
		switch text := strings.TrimSpace(string(left[:n])); {
		case s.knows(text):
			o.before = text
		case text != "": // it is damaged: as the kernel has it when it starts
			o.before = s.kernel
		}
		return nil
	}
	if err := o.file.Truncate(0); err != nil {
		return err
	}
	if _, err := o.file.WriteAt([]byte(o.before), 0); err != nil {
		return err
	}
	return s.write(s.programs)
}

// holds tells whether connections that begin now are this program's, or says
// whose they are.
func (o *office) holds() (is bool, whose string) {
	s, err := readSetting()
	if err != nil {
		return false, err.Error()
	}
	return s.now == s.programs, s.now
}

// end puts the setting back, unless somebody has set it meanwhile.
func (o *office) end() error {
	s, err := readSetting()
	if err == nil && s.now == s.programs && o.before != s.programs {
		err = s.write(o.before)
	}
	if err == nil {
		err = o.file.Truncate(0)
	}
	return errors.Join(err, o.file.Close())
}
