package sevenpaths

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

// A run sends for rampUp, until all subflows are there and as fast as they
// will be, then for measured: long enough that what waits at the server for
// data of a slower subflow hardly counts. With random ports it is rather
// the links that matter.
const (
	rampUp         = 900 * time.Millisecond
	measured       = 1800 * time.Millisecond
	measuredRandom = 700 * time.Millisecond
	// readyWait bounds how long a daemon takes to start.
	readyWait = 30 * time.Second
	// carried is the least share of what fits on a link that counts as a
	// subflow's data there.
	carried = 0.1
)

// traffic sends from the client to the server.
type traffic struct {
	fabric  *fabrics.Fabric
	bed     testbed
	program string
	ports   func() *net.TCPAddr // of connections

	listener net.Listener
	received atomic.Uint64    // bytes
	peer     *fabrics.Process // `fairlead mptcp` at the server
	manager  *fabrics.Process // and at the client
	mode     point            // of the manager
	started  int              // daemons
}

func newTraffic(ctx context.Context, f *fabrics.Fabric, b testbed, program string, ports func() *net.TCPAddr) (*traffic, error) {
	t := &traffic{fabric: f, bed: b, program: program, ports: ports}
	err := f.In("server", func() (err error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(true)
		t.listener, err = lc.Listen(ctx, "tcp", ":0")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen at the server: %w", err)
	}
	go t.serve()
	// At the server it makes the kernel take joins.
	if t.peer, err = t.start("server"); err != nil {
		return nil, errors.Join(err, t.listener.Close())
	}
	return t, nil
}

// serve receives whatever comes.
func (t *traffic) serve() {
	for {
		c, err := t.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(counting{&t.received}, c)
		}()
	}
}

// counting counts what is written and forgets it.
type counting struct{ n *atomic.Uint64 }

func (c counting) Write(b []byte) (int, error) {
	c.n.Add(uint64(len(b)))
	return len(b), nil
}

// start runs `fairlead mptcp` in a machine and waits until it manages paths.
func (t *traffic) start(machine string, args ...string) (*fabrics.Process, error) {
	t.started++
	name := fmt.Sprintf("%s-mptcp-%d", machine, t.started)
	p, err := t.fabric.Spawn(machine, name, append([]string{t.program, "mptcp", "-f", t.fabric.Path()}, args...)...)
	if err != nil {
		return nil, err
	}
	serves := func() bool { return strings.Contains(p.Log(), "msg=serving") }
	if !netspace.WaitFor(readyWait, func() bool { return serves() || p.Ended() }) || p.Ended() {
		return nil, fmt.Errorf("`fairlead mptcp` of %s does not start:\n%s", machine, p.Log())
	}
	return p, nil
}

// manage has the client's connections get p's subflows.
func (t *traffic) manage(p point) error {
	if t.manager != nil && t.mode.subflows == p.subflows && t.mode.random == p.random {
		return nil
	}
	t.unmanage()
	args := []string{"--subflows", strconv.Itoa(p.subflows)}
	if p.random {
		args = append(args, "--random-ports")
	}
	m, err := t.start("client", args...)
	t.manager, t.mode = m, p
	return err
}

func (t *traffic) unmanage() {
	if t.manager != nil {
		t.manager.Stop()
	}
	t.manager = nil
}

func (t *traffic) close() {
	t.unmanage()
	_ = t.listener.Close()
}

// baseline is what TCP gets over one link, in bit/s: the median of some runs.
func (t *traffic) baseline(ctx context.Context) (float64, error) {
	var all []float64
	for range repeats {
		r, err := t.send(ctx, false, measured)
		if err != nil {
			return 0, fmt.Errorf("%s, TCP: %w", t.bed.name, err)
		}
		all = append(all, r.Goodput)
	}
	return median(all), nil
}

// run is one connection of Multipath TCP.
func (t *traffic) run(ctx context.Context, p point) (OneRun, error) {
	if err := t.manage(p); err != nil {
		return OneRun{}, err
	}
	if p.random {
		return t.send(ctx, true, measuredRandom)
	}
	return t.send(ctx, true, measured)
}

// send sends over one connection and counts.
func (t *traffic) send(ctx context.Context, multipath bool, measured time.Duration) (run OneRun, err error) {
	c, err := t.dial(ctx, multipath, t.server(false))
	if err != nil {
		return run, err
	}
	// Reset, not closed: what waits in queues must not go into the next run.
	defer func() {
		_ = c.SetLinger(0)
		_ = c.Close()
	}()
	sent := make(chan error, 1)
	go func() {
		buf := make([]byte, 64<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				sent <- err
				return
			}
		}
	}()
	if err := wait(ctx, sent, rampUp); err != nil {
		return run, err
	}
	before, err := t.passed()
	if err != nil {
		return run, err
	}
	began, got := time.Now(), t.received.Load()
	if err := wait(ctx, sent, measured); err != nil {
		return run, err
	}
	got, took := t.received.Load()-got, time.Since(began)
	after, err := t.passed()
	if err != nil {
		return run, err
	}
	run.Goodput = float64(got) * 8 / took.Seconds()
	full := float64(t.bed.fabric.Links[t.bed.counted[0]].Capacity) / 8 * took.Seconds()
	for i := range after {
		share := float64(after[i]-before[i]) / full
		run.Shares = append(run.Shares, share)
		if share >= carried {
			run.Used++
		}
	}
	return run, nil
}

// wait waits for so long; the sender must not end.
func wait(ctx context.Context, sent <-chan error, d time.Duration) error {
	select {
	case err := <-sent:
		return fmt.Errorf("the connection ended: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// passed is what has come over the counted links towards the server.
func (t *traffic) passed() (bytes []uint64, err error) {
	for _, link := range t.bed.counted {
		n, err := t.fabric.Passed(link)
		if err != nil {
			return nil, err
		}
		bytes = append(bytes, n[0])
	}
	return bytes, nil
}

// server is the server's address of a family.
func (t *traffic) server(six bool) netip.Addr {
	addresses := t.fabric.Topology().Nodes[t.fabric.Node("server")].Addresses
	return addresses[slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Is6() == six })]
}

// dial connects the client to the server.
func (t *traffic) dial(ctx context.Context, multipath bool, server netip.Addr) (*net.TCPConn, error) {
	to := net.JoinHostPort(server.String(), strconv.Itoa(t.listener.Addr().(*net.TCPAddr).Port))
	var conn net.Conn
	err := t.fabric.In("client", func() (err error) {
		d := net.Dialer{Timeout: readyWait, LocalAddr: t.ports()}
		d.SetMultipathTCP(multipath)
		conn, err = d.DialContext(ctx, "tcp", to)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect the client to the server: %w", err)
	}
	c := conn.(*net.TCPConn)
	if is, err := c.MultipathTCP(); err == nil && is != multipath {
		return c, errors.Join(fmt.Errorf("the connection's Multipath TCP is %v, not %v", is, multipath), c.Close())
	}
	return c, nil
}
