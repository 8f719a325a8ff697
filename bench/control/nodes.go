package control

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// nodes are the three controllers.
type nodes struct {
	at   Address
	dir  string
	cmds []*exec.Cmd
	said []*bytes.Buffer
	// ended lets go of what started each.
	ended []func()
}

const nodeWait = time.Minute

func startNodes(ctx context.Context, dir, program string) (n *nodes, err error) {
	n = &nodes{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.stop())
		}
	}()
	ports, err := freePorts(6)
	if err != nil {
		return n, err
	}
	var file strings.Builder
	fmt.Fprintf(&file, "secret: %s\ntls: {ca: ca.pem, cert: cert.pem, key: key.pem}\ncontrollers:\n", secret)
	for i := range 3 {
		fmt.Fprintf(&file, "- {name: c%d, store: \"https://127.0.0.1:%d\", peer: \"https://127.0.0.1:%d\", api: \"unix:%s\"}\n", i+1, ports[i], ports[3+i], filepath.Join(dir, fmt.Sprintf("c%d.sock", i+1)))
		n.at.Endpoints = append(n.at.Endpoints, fmt.Sprintf("https://127.0.0.1:%d", ports[i]))
	}
	file.WriteString("balancers: [{name: lb1, interfaces: [eth0], api: \"https://127.0.0.1:1\"}]\nservers: [{name: s0, address: 10.0.0.0, api: \"https://127.0.0.1:2\"}]\n" +
		"vips: [{address: 192.0.2.1, port: 80, servers: [s0]}]\n")
	yaml, certs := filepath.Join(dir, "fairlead.yaml"), filepath.Join(dir, "certs")
	if err := os.WriteFile(yaml, []byte(file.String()), 0o600); err != nil {
		return n, err
	}
	if out, err := exec.CommandContext(ctx, program, "certs", "-f", yaml, certs).CombinedOutput(); err != nil {
		return n, fmt.Errorf("make certificates: %w: %s", err, out)
	}
	own := filepath.Join(certs, "lb1")
	n.at.TLS = config.TLS{CA: filepath.Join(own, "ca.pem"), Cert: filepath.Join(own, "cert.pem"), Key: filepath.Join(own, "key.pem")}
	for i := range 3 {
		name := fmt.Sprint("c", i+1)
		own := filepath.Join(certs, name, filepath.Base(yaml)) // its certificates are beside it
		if err := os.Symlink(yaml, own); err != nil {
			return n, fmt.Errorf("give %s its file: %w", name, err)
		}
		cmd, said := exec.CommandContext(ctx, program, "controller", "-f", own, "--name", name, "--state-dir", filepath.Join(dir, "state")), &bytes.Buffer{}
		cmd.Stderr = said
		cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
		ended, err := start(cmd, 0)
		if err != nil {
			return n, err
		}
		n.cmds, n.said, n.ended = append(n.cmds, cmd), append(n.said, said), append(n.ended, ended)
	}
	s, l, err := n.at.open()
	if err != nil {
		return n, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, nodeWait)
	defer cancel()
	for {
		asking, done := context.WithTimeout(ctx, time.Second)
		_, err := l.Head(asking)
		done()
		if err == nil || ctx.Err() != nil {
			return n, err
		}
	}
}

// stop ends the controllers.
func (n *nodes) stop() (err error) {
	for _, cmd := range n.cmds {
		_ = cmd.Process.Signal(unix.SIGTERM)
	}
	for i, cmd := range n.cmds {
		if why := cmd.Wait(); why != nil {
			err = errors.Join(err, fmt.Errorf("controller %d: %w: %s", i+1, why, n.said[i]))
		}
		n.ended[i]()
	}
	return err
}

// freePorts are nobody's now.
func freePorts(count int) (ports []int, err error) {
	for range count {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func secretBytes() []byte {
	b, err := hex.DecodeString(secret)
	if err != nil {
		panic(err) // it is ours
	}
	return b
}

func (a Address) open() (store.Store, *ledger.Ledger, error) {
	certificates, err := api.ClientTLS(a.TLS)
	if err != nil {
		return nil, nil, err
	}
	s, err := store.Open(store.Options{Endpoints: a.Endpoints, TLS: certificates})
	if err != nil {
		return nil, nil, err
	}
	l, err := ledger.New(s, secretBytes())
	return s, l, err
}

// measure compacts the store, and says what the controllers have then.
func (n *nodes) measure(ctx context.Context, r *Result) error {
	certificates, err := api.ClientTLS(n.at.TLS)
	if err != nil {
		return err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: n.at.Endpoints, TLS: certificates})
	if err != nil {
		return err
	}
	defer c.Close()
	now, err := c.Get(ctx, "?")
	if err != nil {
		return err
	}
	if _, err := c.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return err
	}
	for i, cmd := range n.cmds {
		is, peak, err := resident(cmd.Process.Pid)
		if err != nil {
			return err
		}
		r.NodeBytes, r.NodePeakBytes = append(r.NodeBytes, is), append(r.NodePeakBytes, peak)
		var disk uint64
		err = filepath.WalkDir(filepath.Join(n.dir, "state", fmt.Sprint("c", i+1)), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if info, err := d.Info(); err == nil {
					disk += uint64(info.Size())
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.NodeDiskBytes = append(r.NodeDiskBytes, disk)
	}
	return nil
}

// resident is what a process has in memory, and the most that it ever had.
func resident(pid int) (is, peak uint64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		var at *uint64
		switch {
		case strings.HasPrefix(line, "VmRSS:"):
			at = &is
		case strings.HasPrefix(line, "VmHWM:"):
			at = &peak
		default:
			continue
		}
		kb, err := strconv.ParseUint(strings.Fields(line)[1], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		*at = kb << 10
	}
	return is, peak, nil
}

// load is how much the machine has to do.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// floor is what it takes to put as many bytes into the store, one value after the other.
func floor(ctx context.Context, s store.Store, size uint64) (float64, error) {
	random := rand.NewChaCha8([32]byte{})
	begun := time.Now()
	for n := 0; size > 0; n++ {
		part := make([]byte, min(size, 512<<10))
		random.Read(part)
		if _, err := s.Commit(ctx, nil, store.Op{Key: fmt.Sprint("floor/", n), Value: part}); err != nil {
			return 0, err
		}
		size -= uint64(len(part))
	}
	took := ms(time.Since(begun))
	_, err := s.Commit(ctx, nil, store.Op{Key: "floor/", Prefix: true, Delete: true})
	return took, err
}
