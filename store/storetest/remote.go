package storetest

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fairlead/fairlead/store"
)

// Remote gives a suite an etcd: each store has keys of its own there.
func Remote(endpoints []string, tls *tls.Config) Fresh {
	return func(t *testing.T) (func() Client, func(int64) error) {
		prefix := "/" + t.Name() + "/"
		open := func() Client {
			var ways []string
			r := &remote{}
			for _, e := range endpoints {
				ways = append(ways, r.through(t, e))
			}
			s, err := store.Open(store.Options{Endpoints: ways, TLS: tls, Prefix: prefix})
			if err != nil {
				t.Fatal(err)
			}
			r.Store = s
			t.Cleanup(func() { r.Cut(false); s.Close() })
			return r
		}
		compact := func(rev int64) error {
			c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tls})
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Compact(context.Background(), rev)
			return err
		}
		return open, compact
	}
}

// remote is a store behind a network that can be cut.
type remote struct {
	store.Store
	mu  sync.Mutex
	cut bool
	// gate is held while nothing gets through.
	gate sync.RWMutex
}

func (r *remote) Cut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cut && !r.cut {
		r.gate.Lock()
	}
	if !cut && r.cut {
		r.gate.Unlock()
	}
	r.cut = cut
}

// through is an address that leads to endpoint, for t.
func (r *remote) through(t *testing.T, endpoint string) string {
	scheme, at, _ := strings.Cut(endpoint, "://")
	network, mine := "tcp", "127.0.0.1:0"
	if scheme == "unix" {
		// Not below t.TempDir: a socket's path is short.
		dir, err := os.MkdirTemp("", "store")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		network, mine = "unix", filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, mine)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			r.pass()
			far, err := net.Dial(network, at)
			if err != nil {
				near.Close()
				continue
			}
			go r.carry(near, far)
			go r.carry(far, near)
		}
	}()
	return scheme + "://" + l.Addr().String()
}

// carry what to sends until either end closes.
func (r *remote) carry(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		r.pass()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// pass waits for the cut to be undone.
func (r *remote) pass() {
	r.gate.RLock()
	defer r.gate.RUnlock()
}
