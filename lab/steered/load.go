package steered

import (
	"bufio"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab"
)

const (
	// writeEvery: a connection writes so often.
	writeEvery = 25 * time.Millisecond
	// lookEvery: what is acknowledged is read so often.
	lookEvery = 20 * time.Millisecond
	// endTimeout bounds the last answers.
	endTimeout = 30 * time.Second
	// stall is a silence that a user notices.
	stall = 2 * time.Second
)

// load is a run's connections. Each uploads without an end, and asks at the end
// what has arrived.
type load struct {
	all  []*connection
	stop context.CancelFunc
	wg   sync.WaitGroup
}

type connection struct {
	tcp *net.TCPConn

	mu       sync.Mutex
	sent     int64
	sum      uint32
	err      error
	acked    uint64    // bytes, by the kernel
	progress time.Time // when that last grew
}

// open opens a run's connections.
func (s *site) open(ctx context.Context, steer string) (*load, error) {
	ctx, stop := context.WithCancel(ctx)
	l := &load{stop: stop}
	err := s.fabric.In("client", func() error {
		for range s.o.Connections {
			d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: -1, LocalAddr: s.ports()}
			c, err := d.DialContext(ctx, "tcp4", vip(steer)+":80")
			if err != nil {
				return err
			}
			l.all = append(l.all, &connection{tcp: c.(*net.TCPConn), progress: time.Now()})
		}
		return nil
	})
	if err != nil {
		l.close()
		return nil, err
	}
	size := max(1, int(float64(s.o.ConnectionRate)*writeEvery.Seconds()/8))
	for _, c := range l.all {
		l.wg.Go(func() { c.upload(ctx, size) })
	}
	l.wg.Go(func() { l.look(ctx) })
	return l, nil
}

func (l *load) close() {
	l.stop()
	for _, c := range l.all {
		c.tcp.Close()
	}
	l.wg.Wait()
}

// upload writes a chunk now and then until ctx ends.
func (c *connection) upload(ctx context.Context, size int) {
	_, err := io.WriteString(c.tcp, "POST / HTTP/1.1\r\nHost: lab\r\nTransfer-Encoding: chunked\r\n\r\n")
	body := make([]byte, size)
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := range body {
			body[i] = byte(c.sent + int64(i)*7)
		}
		_, err = fmt.Fprintf(c.tcp, "%x\r\n%s\r\n", size, body)
		c.mu.Lock()
		c.sent, c.sum = c.sent+int64(size), crc32.Update(c.sum, crc32.IEEETable, body)
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
}

// look follows what is acknowledged.
func (l *load) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, c := range l.all {
			c.look()
		}
	}
}

func (c *connection) look() {
	acked, ok := bytesAcked(c.tcp)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok && acked != c.acked {
		c.acked, c.progress = acked, time.Now()
	}
}

func bytesAcked(tcp syscall.Conn) (n uint64, ok bool) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n, ok = info.Bytes_acked, true
		}
	})
	return n, ok && err == nil
}

// watch follows the connections through a phase.
type watch struct {
	began time.Time
	first []uint64 // acknowledged when it began
	gap   []time.Duration
}

func (l *load) watch() *watch {
	w := &watch{began: time.Now(), gap: make([]time.Duration, len(l.all))}
	for _, c := range l.all {
		c.mu.Lock()
		w.first = append(w.first, c.acked)
		c.mu.Unlock()
	}
	return w
}

// step takes in how long connections have been silent.
func (w *watch) step(l *load, now time.Time) {
	for i, c := range l.all {
		c.mu.Lock()
		since := c.progress
		c.mu.Unlock()
		if since.Before(w.began) {
			since = w.began
		}
		w.gap[i] = max(w.gap[i], now.Sub(since))
	}
}

// into fills in a phase.
func (w *watch) into(p *Phase, l *load) {
	var bytes uint64
	for i, c := range l.all {
		c.mu.Lock()
		bytes += c.acked - w.first[i]
		c.mu.Unlock()
		p.LongestGap = max(p.LongestGap, w.gap[i].Seconds())
		if w.gap[i] > stall {
			p.Stalled++
		}
	}
	p.Goodput = float64(8*bytes) / p.Seconds
}

// finish ends all uploads and holds what arrived against what was sent.
func (l *load) finish() (broken int, failures []string) {
	l.stop()
	l.wg.Wait()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range l.all {
		wg.Go(func() {
			if err := c.finish(); err != nil {
				mu.Lock()
				broken++
				if failures = append(failures, fmt.Sprintf("%s: %v", c.tcp.LocalAddr(), err)); len(failures) > 10 {
					failures = failures[:10]
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return broken, failures
}

func (c *connection) finish() error {
	if c.err != nil {
		return c.err
	}
	if err := c.tcp.SetDeadline(time.Now().Add(endTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.tcp, "0\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(c.tcp), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	server := strings.Fields(string(text) + " ?")[0]
	if want := lab.UploadAnswer(server, c.sent, c.sum); string(text) != want {
		return fmt.Errorf("%q arrived, %q was sent", text, want)
	}
	return nil
}
