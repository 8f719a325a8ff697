package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Prober asks a target once. A nil error is a good answer; an error says
// what was wrong with it. The context carries the timeout.
type Prober interface {
	Probe(ctx context.Context, t Target) error
}

// MarkBase is the upper 12 bits of the marks of check sockets; the lower 20 are
// the server line that the balancer's tc program sends them to.
const MarkBase = 0xFA100000

// Network probes through real sockets.
type Network struct {
	// Steer, of a balancer, says from where to where a check's socket connects, so
	// that with the mark MarkBase|Target.Line its packets take the way of the VIP's
	// traffic to that server. Without it they go straight to Target.Address.
	Steer func(Target) (from netip.Addr, to netip.AddrPort, err error)
}

// Probe implements Prober for types tcp and http.
func (n Network) Probe(ctx context.Context, t Target) error {
	dialer, to := net.Dialer{KeepAlive: -1}, t.Address
	if n.Steer != nil {
		from, way, err := n.Steer(t)
		if err != nil {
			return Local{plain(err)}
		}
		to, dialer.LocalAddr, dialer.Control = way, net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), marked(t.Line)
	}
	// A Go dialer would use MPTCP only when asked to; checks stay plain TCP.
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if n.Steer != nil && (errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH)) {
		return Local{plain(err)} // of the way to the stand-in, of which no ICMP speaks
	}
	if err != nil {
		return plain(err)
	}
	defer conn.Close()
	// Close by RST: with many servers behind one VIP, TIME_WAIT would use up
	// the ports between this machine and the VIP.
	if c, ok := conn.(*net.TCPConn); ok {
		if err := c.SetLinger(0); err != nil {
			return fmt.Errorf("set linger: %w", err)
		}
	}
	if t.Type != "http" {
		return nil
	}
	return probeHTTP(ctx, conn, t)
}

// marked gives a socket the mark of a server line.
func marked(line uint32) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			// Bound without its port, which the whole connection then decides: a local
			// port serves checks of many VIPs.
			failed = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(MarkBase|line)),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1))
		})
		if failed != nil {
			return fmt.Errorf("mark the check's socket (needs CAP_NET_ADMIN): %w", failed)
		}
		return err
	}
}

// Bounds of an answer: of its head, of what of its body is read, and of interim answers.
const (
	maxHead    = 64 << 10
	maxBody    = 64 << 10
	maxInterim = 5
)

// probeHTTP sends one GET over conn. 200 to 399 is a good answer; redirects
// are not followed, for they may lead to another server. It is without http.Transport,
// whose goroutines a connection cost a balancer at rest as much as all else of a check.
func probeHTTP(ctx context.Context, conn net.Conn, t Target) error {
	host := t.Host
	if host == "" {
		host = t.Address.Addr().String()
		if t.Address.Addr().Is6() {
			host = "[" + host + "]"
		}
	}
	path := t.Path
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	req, err := http.NewRequest(http.MethodGet, "http://"+t.Address.String()+path, nil)
	if err != nil {
		return fmt.Errorf("path %q: %w", t.Path, err)
	}
	req.Host, req.Close = host, true
	req.Header.Set("User-Agent", "fairlead-health")
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return plain(err)
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })() // cancelled before
	if err := req.Write(conn); err != nil {
		return plain(err)
	}
	answer := bufio.NewReader(io.LimitReader(conn, maxHead+maxBody))
	resp, err := http.ReadResponse(answer, req)
	for n := 0; err == nil && resp.StatusCode < 200 && n < maxInterim; n++ {
		resp, err = http.ReadResponse(answer, req)
	}
	if err != nil {
		return plain(err)
	}
	defer resp.Body.Close()
	// An answer that stops half-way is no answer; a huge one need not be read.
	if _, err := io.CopyN(io.Discard, resp.Body, maxBody); err != nil && err != io.EOF {
		return plain(err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	return nil
}

// plain is the cause alone, in words that stay the same from check to check
// (ports differ each time), so that status shows one line a cause.
func plain(err error) error {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("connection refused")
	case errors.Is(err, syscall.ECONNRESET):
		return errors.New("connection reset")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err
}

// Target is one server of one VIP as it is checked.
type Target struct {
	VIP      uint32 // assignment's VIP id
	VIPName  string
	Slot     uint16
	Server   string
	At       netip.Addr // the server's own address
	Line     uint32     // server line in the balancer's maps, under 2^20
	Address  netip.AddrPort
	Type     string // tcp or http
	Path     string
	Host     string
	Interval time.Duration
	Timeout  time.Duration
	Rise     int
	Fall     int
}
