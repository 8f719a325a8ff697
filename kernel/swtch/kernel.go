package swtch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/rtnl"
)

// kernel is the edge to the kernel of one network namespace; tests put one
// between that refuses.
type kernel interface {
	// execute sends messages in one go; the kernel takes them one by one and
	// goes on behind one that it refuses. The error is the first refusal;
	// which message it concerns is not known if there are several.
	execute(messages []netlink.Message) error
	// ask sends one message and returns what it brings.
	ask(m netlink.Message) ([]netlink.Message, error)
	// sysctl reads a setting by its path below /proc/sys.
	sysctl(path string) (string, error)
	setSysctl(path, value string) error
	// watch tells of changes that others make until ctx ends.
	watch(ctx context.Context, concerns func(netlink.Message) bool) (<-chan struct{}, error)
	io.Closer
}

// rtnetlink is the kernel of the namespace in which it was opened, on whatever
// thread it is used later.
type rtnetlink struct {
	*rtnl.Conn
	sysctls map[string]*os.File
	// port is the socket's netlink port, which notifications of its changes carry.
	port atomic.Uint32
}

// A sent batch must fit the send buffer with the kernel's own overhead.
const batchBytes = 128 << 10

// settings are the sysctls that a switch needs. All switches must hash alike;
// the ports of a flow are hashed, and nothing that differs between switches
// (as the layer 4 hash of a packet that a local socket sent).
//
// nexthop_compat_mode is 0, for with 1 listing routes spells out the members
// of groups, and from some 230 members on `ip route`, BIRD and FRR get an
// empty list without an error (tried: iproute2 6.1).
const (
	policyCustom = "3"
	// hashFields: both addresses, protocol, both ports.
	hashFields = 0x37

	policy4    = "net/ipv4/fib_multipath_hash_policy"
	policy6    = "net/ipv6/fib_multipath_hash_policy"
	fields4    = "net/ipv4/fib_multipath_hash_fields"
	fields6    = "net/ipv6/fib_multipath_hash_fields"
	hashSeed   = "net/ipv4/fib_multipath_hash_seed" // of both families
	compatMode = "net/ipv4/nexthop_compat_mode"     // of both families
	forward4   = "net/ipv4/ip_forward"
	forward6   = "net/ipv6/conf/all/forwarding"
)

// Setting is one sysctl that a switch needs.
type Setting struct {
	// Name as `sysctl` has it.
	Name, Value string
}

// Settings are the sysctls that a switch sets, and keeps set: the same on all
// switches of a deployment, whose hash seed is given.
func Settings(seed uint32) []Setting {
	fields := strconv.Itoa(hashFields)
	paths := []Setting{
		{fields4, fields}, {fields6, fields}, {hashSeed, strconv.FormatUint(uint64(seed), 10)},
		{policy4, policyCustom}, {policy6, policyCustom}, {compatMode, "0"},
	}
	for i := range paths {
		paths[i].Name = strings.ReplaceAll(paths[i].Name, "/", ".")
	}
	return paths
}

func (s Setting) path() string { return strings.ReplaceAll(s.Name, ".", "/") }

// equal: the kernel prints the fields in hexadecimal or decimal by version,
// and the seed with leading zeros.
func (s Setting) equal(is string) bool {
	want, err1 := strconv.ParseUint(s.Value, 0, 64)
	got, err2 := strconv.ParseUint(strings.TrimSpace(is), 0, 64)
	return err1 == nil && err2 == nil && want == got
}

func openKernel() (*rtnetlink, error) {
	conn, err := rtnl.Open()
	if err != nil {
		return nil, err
	}
	k := &rtnetlink{Conn: conn, sysctls: map[string]*os.File{}}
	for _, path := range []string{policy4, policy6, fields4, fields6, hashSeed, compatMode, forward4, forward6} {
		// /proc/sys/net is of the namespace of the thread that opens it.
		f, err := os.OpenFile("/proc/sys/"+path, os.O_RDWR, 0)
		if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
			f, err = os.Open("/proc/sys/" + path)
		}
		if err == nil {
			k.sysctls[path] = f
		} else if !errors.Is(err, os.ErrNotExist) {
			k.Close()
			return nil, fmt.Errorf("open sysctl: %w", err)
		}
	}
	return k, nil
}

func (k *rtnetlink) Close() error {
	for _, f := range k.sysctls {
		f.Close()
	}
	return k.Conn.Close()
}

func (k *rtnetlink) sysctl(path string) (string, error) {
	f := k.sysctls[path]
	if f == nil {
		return "", fmt.Errorf("this kernel has no sysctl %s (Linux 6.11 or newer with the family is needed)", strings.ReplaceAll(path, "/", "."))
	}
	var b [256]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(string(b[:n])), nil
}

func (k *rtnetlink) setSysctl(path, value string) error {
	f := k.sysctls[path]
	if f == nil {
		_, err := k.sysctl(path)
		return err
	}
	if _, err := f.WriteAt([]byte(value+"\n"), 0); err != nil {
		return fmt.Errorf("sysctl -w %s=%s: %w", strings.ReplaceAll(path, "/", "."), value, err)
	}
	return nil
}

func (k *rtnetlink) execute(messages []netlink.Message) error {
	var first error
	for len(messages) > 0 {
		n, size := 0, 0
		for n < len(messages) && (n == 0 || size+len(messages[n].Data) < batchBytes) {
			size += len(messages[n].Data) + unix.SizeofNlMsghdr
			n++
		}
		if err := k.batch(messages[:n]); err != nil && first == nil {
			first = err
		}
		messages = messages[n:]
	}
	return first
}

// batch sends messages and, behind them, one that does nothing but be
// acknowledged: all refusals have come when that does.
func (k *rtnetlink) batch(messages []netlink.Message) error {
	batch := append(messages[:len(messages):len(messages)],
		netlink.Message{Header: netlink.Header{Type: netlink.Noop, Flags: netlink.Request | netlink.Acknowledge}})
	sent, err := k.SendMessages(batch)
	if err != nil {
		return err
	}
	k.port.Store(sent[0].Header.PID)
	end := sent[len(sent)-1].Header.Sequence
	var first error
	for {
		replies, err := k.Receive()
		if err != nil {
			var socket *os.SyscallError
			if errors.As(err, &socket) {
				// Refusals were lost, and the acknowledgement perhaps with
				// them: nothing more is known of this batch.
				return errors.Join(first, err, k.Reopen())
			}
			if first == nil {
				first = err
			}
			continue
		}
		for _, r := range replies {
			if r.Header.Sequence == end {
				return first
			}
		}
	}
}

func (k *rtnetlink) ask(m netlink.Message) ([]netlink.Message, error) { return k.Ask(m) }
