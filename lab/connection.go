package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// connection is one TCP connection of the load. Every kind first asks who
// answers, and then holds the server to it until the end.
type connection struct {
	net.Conn
	read   *bufio.Reader
	server string
	ends   endpoints // zero before they are known
	target string
	began  time.Time
	// begun is how many changes had begun when a server first answered.
	begun int
	flow  *flow // nil until it is open
	// steady ones know the last round that they answered.
	steady bool
	round  int
	l      *load
}

// do runs one planned connection from its start to its count.
func (l *load) do(ctx context.Context, t Target, j job) {
	c := &connection{l: l, target: t.Name, began: time.Now(), steady: j.kind == "steady"}
	l.mu.Lock()
	l.tallies[t.Name].Started++
	l.tallies[t.Name].Alive++
	if j.kind == "paced" {
		l.latestStart = max(l.latestStart, c.began.Sub(l.start.Add(j.at)))
	}
	l.mu.Unlock()
	err := c.dial(ctx, t.Endpoint)
	if err == nil {
		// A load that is called off ends its connections at once.
		stop := context.AfterFunc(ctx, func() { c.Conn.Close() })
		err = c.carryOut(ctx, j)
		stop()
	}
	l.awaitNews(ctx, err)
	l.ended(t, j, c, err)
	if c.Conn != nil {
		c.Conn.Close()
	}
}

func (c *connection) dial(ctx context.Context, endpoint string) error {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
	if err := c.takePort(&dialer, endpoint); err != nil {
		return err
	}
	conn, err := dialer.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.Conn, c.read = conn, bufio.NewReader(conn)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.open[c] = struct{}{}
	c.known(endpoints{endpointOf(conn.LocalAddr()), endpointOf(conn.RemoteAddr())})
	return nil
}

// known has RSTs to these endpoints counted for the connection. The caller holds mu.
func (c *connection) known(ends endpoints) {
	if c.ends != ends {
		c.ends, c.flow = ends, &flow{target: c.target, began: c.began}
		c.l.flows[ends] = c.flow
	}
}

func (c *connection) carryOut(ctx context.Context, j job) error {
	if j.kind == "paced" { // one request, as the paper's
		return c.paced(j)
	}
	if err := c.ask(); err != nil {
		return err
	}
	c.answered()
	switch j.kind {
	case "short":
		if j.pause == 0 {
			return nil
		}
		if err := sleep(ctx, j.pause); err != nil {
			return err
		}
		return c.download(j.size)
	case "stream":
		return c.follow(j.length)
	case "upload":
		return c.upload(ctx, j.length)
	case "idle":
		if err := sleep(ctx, j.length); err != nil {
			return err
		}
		return c.ask()
	case "steady":
		return c.stay(ctx, j.seed)
	}
	return fmt.Errorf("connection of unknown kind %q", j.kind)
}

// answered counts the first answer.
func (c *connection) answered() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.tallies[c.target].Answered++
	c.begun, c.round = c.l.begun, c.l.round
}

// stay asks now and then, and once more when the load is over.
func (c *connection) stay(ctx context.Context, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 0))
	for {
		c.l.mu.Lock()
		round, asked := c.l.round, c.l.asked
		behind := c.round < round
		c.l.mu.Unlock()
		if behind {
			if err := c.ask(); err != nil {
				return err
			}
			c.l.mu.Lock()
			c.round = round
			c.l.mu.Unlock()
			continue
		}
		pause := time.NewTimer(seconds(c.l.plan.Pause * (0.25 + 0.75*random.Float64())))
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-c.l.over:
			pause.Stop()
			// Not all at the same moment.
			if err := sleep(ctx, seconds(2*random.Float64())); err != nil {
				return err
			}
			return c.ask()
		case <-asked:
			pause.Stop()
			// Not all at the same moment.
			if err := sleep(ctx, seconds(0.3*random.Float64())); err != nil {
				return err
			}
			continue
		case <-pause.C:
		}
		if err := c.ask(); err != nil {
			return err
		}
	}
}

// expect moves the deadline: the next bytes must come within d, unless the
// server has crashed.
func (c *connection) expect(d time.Duration) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.l.died(c) {
		d = min(d, crashGrace)
	}
	_ = c.SetDeadline(time.Now().Add(d))
}

// patience is how long an answer may take.
func (c *connection) patience() time.Duration {
	if p := c.l.plan.Patience; p > 0 {
		return seconds(p)
	}
	return answerTimeout
}

// request sends a request and returns the answer's head, from the server
// that answered before.
func (c *connection) request(method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequest(method, "http://lab"+path, body)
	if err != nil {
		return nil, err
	}
	c.expect(c.patience())
	if err := r.Write(c.Conn); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	c.expect(c.patience())
	answer, err := http.ReadResponse(c.read, r)
	if err != nil {
		return nil, fmt.Errorf("await answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	name := answer.Header.Get(serverHeader)
	switch {
	case name == "":
		return nil, errors.New("the answer does not tell its server")
	case c.server != "" && name != c.server:
		return nil, fmt.Errorf("wrong server: %s, before it was %s", name, c.server)
	}
	c.l.mu.Lock()
	c.server = name
	c.l.mu.Unlock()
	return answer, nil
}

// ask asks who answers.
func (c *connection) ask() error {
	answer, err := c.request("GET", "/", nil)
	if err != nil {
		return err
	}
	return c.same(answer.Body, c.server+"\n")
}

// same reads a whole body and compares it.
func (c *connection) same(body io.Reader, want string) error {
	c.expect(c.patience())
	got, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if string(got) != want {
		return fmt.Errorf("wrong bytes: %.60q instead of %.60q", got, want)
	}
	return nil
}

func (c *connection) download(size int) error {
	answer, err := c.request("GET", fmt.Sprint("/bytes/", size), nil)
	if err != nil {
		return err
	}
	return c.same(answer.Body, string(pattern[:size]))
}

// Rates of the long connections.
const (
	streamInterval = 300 * time.Millisecond
	uploadInterval = 300 * time.Millisecond
	uploadChunk    = 600 // bytes
)

// follow reads a stream line by line to its end.
func (c *connection) follow(length time.Duration) error {
	answer, err := c.request("GET", fmt.Sprintf("/stream?seconds=%.1f&interval=%v", length.Seconds(), streamInterval), nil)
	if err != nil {
		return err
	}
	lines := bufio.NewReader(answer.Body)
	for seq := 0; ; seq++ {
		c.expect(answerTimeout)
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			if whole := int(length.Round(100*time.Millisecond) / streamInterval); seq < whole {
				return fmt.Errorf("stream ended after %d of %d lines", seq, whole)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read line %d of stream: %w", seq, err)
		}
		if want := StreamLine(c.server, seq); line != want {
			return fmt.Errorf("wrong bytes: %.60q instead of %.60q", line, want)
		}
	}
}

// upload sends chunks for the given time and compares the checksum that the
// server answers.
func (c *connection) upload(ctx context.Context, length time.Duration) error {
	body, feed := io.Pipe()
	sum := crc32.NewIEEE()
	var sent int64
	go func() {
		for end := time.Now().Add(length); time.Now().Before(end); {
			c.expect(answerTimeout)
			chunk := []byte(strings.Repeat(StreamLine(c.server, int(sent)), uploadChunk/20))
			n, err := feed.Write(chunk)
			sum.Write(chunk[:n])
			sent += int64(n)
			if err == nil {
				err = sleep(ctx, uploadInterval)
			}
			if err != nil {
				feed.CloseWithError(err)
				return
			}
		}
		feed.Close()
	}()
	answer, err := c.request("POST", "/upload", body)
	body.Close()
	if err != nil {
		return err
	}
	return c.same(answer.Body, UploadAnswer(c.server, sent, sum.Sum32()))
}

// endpointOf is a TCP address as a captured packet has it.
func endpointOf(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// lastHeard is when the kernel last got a packet of the other side, to a
// tick. The process's own clock would be late on a busy machine.
func (c *connection) lastHeard() (time.Time, bool) {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return time.Time{}, false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return time.Time{}, false
	}
	var info *unix.TCPInfo
	if raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }) != nil || err != nil {
		return time.Time{}, false
	}
	return time.Now().Add(-time.Duration(info.Last_ack_recv) * time.Millisecond), true
}
