// Package hosttest builds what the agent's tests need: network namespaces
// with a client and a server, a tunnel that stands in for a balancer, a look
// at what is on the wire and at the kernel's counters.
package hosttest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name: it goes with the process,
// however that ends.
type Namespace struct{ file *os.File }

// NewNamespace makes one. The caller closes it.
func NewNamespace() (*Namespace, error) {
	var n *Namespace
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w; these tests need root", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		n = &Namespace{f}
		return err
	})
	return n, err
}

// Close gives it up. Sockets inside keep it alive.
func (n *Namespace) Close() error { return n.file.Close() }

// FD is a descriptor of the namespace, for netlink.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Do runs f on a thread inside the namespace. Goroutines that f starts are
// not inside.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// onThread runs f on a thread that is thrown away afterwards.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Sysctl sets one, named with dots.
func (n *Namespace) Sysctl(name, value string) error {
	return n.Do(func() error {
		return os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0)
	})
}

// Counters are the kernel's own: TcpExt, Tcp, Ip … as "TcpExt.PAWSEstab".
func (n *Namespace) Counters() (map[string]int64, error) {
	c := map[string]int64{}
	err := n.Do(func() error {
		for _, name := range []string{"netstat", "snmp"} {
			b, err := os.ReadFile("/proc/thread-self/net/" + name)
			if err != nil {
				return err
			}
			var head []string
			for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
				f := strings.Fields(s.Text())
				if head == nil {
					head = f
					continue
				}
				for i := 1; i < len(f) && i < len(head); i++ {
					v, _ := strconv.ParseInt(f[i], 10, 64)
					c[strings.TrimSuffix(f[0], ":")+"."+head[i]] = v
				}
				head = nil
			}
		}
		return nil
	})
	return c, err
}
