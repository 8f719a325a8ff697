// Package clockstep steps the wall clock of single processes, which the kernel has no
// namespace for. Programs ask for the time in the vDSO, a piece of code that the kernel
// lends to each process; here a process that starts gets another piece in its place, which
// asks the kernel and adds an offset:
//
//	start ─▶ the kernel stops it where its program begins ─▶ its vDSO's clock_gettime
//	is written over (a copy of the page, this process's alone) ─▶ it runs
//
// The program is as it is, and so is its monotonic clock. On x86-64 only.
package clockstep

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is a process's.
type Clock struct {
	pid int
	at  uint64 // of the offset, in the process's memory
}

// code is clock_gettime: the kernel's answer, and to that of the wall clock, if it is one,
// the offset that follows, in seconds.
var code = []byte{
	0xb8, 228, 0, 0, 0, // mov eax, 228 (clock_gettime)
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 14, // jnz out
	0x85, 0xff, // test edi, edi (CLOCK_REALTIME)
	0x75, 10, // jnz out
	0x48, 0x8b, 0x0d, 10, 0, 0, 0, // mov rcx, [offset]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3,             // out: ret
	0, 0, 0, 0, 0, 0, // so that the offset begins a word, and is read whole
}

// Start starts a command whose wall clock can be stepped. The caller's thread must be
// locked, and be the one that goes on to call it.
func Start(cmd *exec.Cmd) (*Clock, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("a process's clock cannot be stepped on %s, only on amd64", runtime.GOARCH)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Clock{pid: cmd.Process.Pid}
	_, err := unix.Wait4(c.pid, nil, 0, nil)
	if err == nil {
		err = c.replace()
	}
	if err == nil {
		err = unix.PtraceDetach(c.pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("give process %d a clock of its own: %w", c.pid, err)
	}
	return c, nil
}

// Step sets the clock off the machine's, by whole seconds. The process may be gone.
func (c *Clock) Step(by time.Duration) error {
	if err := c.write(c.at, binary.LittleEndian.AppendUint64(nil, uint64(int64(by/time.Second)))); err != nil {
		return fmt.Errorf("step the clock of process %d: %w", c.pid, err)
	}
	return nil
}

func (c *Clock) memory(flag int) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), flag, 0)
}

func (c *Clock) write(at uint64, data []byte) error {
	f, err := c.memory(os.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(data, int64(at))
	return err
}

// replace writes the code over the vDSO's.
func (c *Clock) replace() error {
	from, to, err := c.vdso()
	if err != nil {
		return err
	}
	f, err := c.memory(os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	image := make([]byte, to-from)
	if _, err := f.ReadAt(image, int64(from)); err != nil {
		return fmt.Errorf("read its vDSO: %w", err)
	}
	parsed, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("its vDSO: %w", err)
	}
	symbols, err := parsed.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("its vDSO: %w", err)
	}
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "__vdso_clock_gettime" })
	if i < 0 {
		return fmt.Errorf("its vDSO has no clock_gettime")
	}
	whole := append(slices.Clone(code), make([]byte, 8)...)
	if symbols[i].Size < uint64(len(whole)) {
		return fmt.Errorf("its vDSO's clock_gettime has %d bytes, and %d are needed", symbols[i].Size, len(whole))
	}
	begin := from + symbols[i].Value
	c.at = begin + uint64(len(code))
	return c.write(begin, whole)
}

// vdso is where it is in the process's memory.
func (c *Clock) vdso() (from, to uint64, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			_, err := fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, fmt.Errorf("it has no vDSO")
}
