package announced

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/netspace"
)

// talk is connections from the client that ask who answers, over and over.
type talk struct {
	lab   *lab.Lab
	ports func() *net.TCPAddr
	stop  context.CancelFunc
	wait  sync.WaitGroup

	mu      sync.Mutex
	broken  int
	first   string // why the first one broke
	answers int64
	gap     time.Duration // the longest wait for an answer
}

// asking is how often a connection asks, and answered how long it waits for an answer.
const asking, answered = 50 * time.Millisecond, 20 * time.Second

// begin opens n connections.
func (t *talk) begin(ctx context.Context, n int) {
	ctx, t.stop = context.WithCancel(ctx)
	for range n {
		port := t.ports()
		t.wait.Go(func() {
			if err := t.ask(ctx, port); err != nil && ctx.Err() == nil {
				t.mu.Lock()
				defer t.mu.Unlock()
				if t.broken++; t.broken == 1 {
					t.first = err.Error()
				}
			}
		})
	}
}

// end closes them.
func (t *talk) end() {
	t.stop()
	t.wait.Wait()
}

// ask is one connection's life.
func (t *talk) ask(ctx context.Context, port *net.TCPAddr) error {
	namespace, err := t.lab.Machine("client")
	if err != nil {
		return err
	}
	conn, err := dialerIn(namespace, port)(ctx, "tcp", t.lab.VIPs[0].Endpoint())
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	read, server := bufio.NewReader(conn), ""
	for {
		began := time.Now()
		if err := conn.SetDeadline(began.Add(answered)); err != nil {
			return err
		}
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: lab\r\n\r\n"); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		answer, err := http.ReadResponse(read, nil)
		if err != nil {
			return fmt.Errorf("await an answer: %w", err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		switch {
		case err != nil:
			return fmt.Errorf("read the answer: %w", err)
		case server != "" && string(body) != server:
			return fmt.Errorf("%s answers, and %s did before", body, server)
		}
		server = string(body)
		t.mu.Lock()
		t.answers, t.gap = t.answers+1, max(t.gap, time.Since(began))
		t.mu.Unlock()
		if sleep(ctx, asking) != nil {
			return nil
		}
	}
}

// dialerIn dials from a namespace, from the local address if that is not nil.
func dialerIn(namespace string, local *net.TCPAddr) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		d := net.Dialer{Timeout: answered}
		if local != nil {
			d.LocalAddr = local
		}
		err = netspace.In(namespace, func() error {
			conn, err = d.DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
}
