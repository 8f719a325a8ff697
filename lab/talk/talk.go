// Package talk is a lab's client that asks who answers, over connections that go on
// while scenarios change things: each is to be answered by one server for its whole
// life.
package talk

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

// Talk is connections from the client that ask who answers, over and over.
type Talk struct {
	Lab *lab.Lab
	// Ports gives each connection a port of the client's.
	Ports func() *net.TCPAddr
	// Endpoints are what they go to, one after the other.
	Endpoints []string

	stop context.CancelFunc
	wait sync.WaitGroup

	mu  sync.Mutex
	sum Sum
}

// Sum is what became of all connections.
type Sum struct {
	// Broken connections: errors, or another server's answer; First is why the first
	// one was.
	Broken  int
	First   string
	Answers int64
	Gap     time.Duration // the longest wait for an answer
}

// asking is how often a connection asks, and answered how long it waits for an answer.
const asking, answered = 50 * time.Millisecond, 20 * time.Second

// Begin opens n connections.
func (t *Talk) Begin(ctx context.Context, n int) {
	ctx, t.stop = context.WithCancel(ctx)
	for i := range n {
		port, to := t.Ports(), t.Endpoints[i%len(t.Endpoints)]
		t.wait.Go(func() {
			if err := t.ask(ctx, port, to); err != nil && ctx.Err() == nil {
				t.mu.Lock()
				defer t.mu.Unlock()
				if t.sum.Broken++; t.sum.Broken == 1 {
					t.sum.First = err.Error()
				}
			}
		})
	}
}

// End closes them, and says what became of them.
func (t *Talk) End() Sum {
	t.stop()
	t.wait.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sum
}

// ask is one connection's life.
func (t *Talk) ask(ctx context.Context, port *net.TCPAddr, to string) error {
	namespace, err := t.Lab.Machine("client")
	if err != nil {
		return err
	}
	conn, err := DialerIn(namespace, port)(ctx, "tcp", to)
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
		t.sum.Answers, t.sum.Gap = t.sum.Answers+1, max(t.sum.Gap, time.Since(began))
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(asking):
		}
	}
}

// DialerIn dials from a namespace, from the local address if that is not nil.
func DialerIn(namespace string, local *net.TCPAddr) func(ctx context.Context, network, address string) (net.Conn, error) {
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
