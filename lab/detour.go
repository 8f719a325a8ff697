package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// What a packet takes longer whose server is not its bucket's current one: a
// client asks connections of the current server and of the one before, in
// turns, and compares the medians.

const (
	// detourConnections of each kind, so that they lie on all fronts.
	detourConnections = 16
	// detourRounds is how often each kind is asked, after a warm-up, in each
	// of detourBlocks. The block counts in which the direct way was fastest:
	// what else goes on at the machine disturbs it least.
	detourRounds = 4000
	detourWarmUp = 500
	detourBlocks = 5
	// maxDetour is the bound on the median's growth (the paper: 14 µs).
	maxDetour = 5.0
	// detourPath asks a lab's server for an echo of everything that follows.
	detourPath = "/echo"
)

// Detour is what scenario chain measured for one VIP.
type Detour struct {
	Run string `json:"run"`
	// Rounds is how many answers each median is of, Blocks how many such
	// measurements there were: of them the one with the fastest direct way.
	Rounds      int `json:"rounds"`
	Blocks      int `json:"blocks"`
	Connections int `json:"connections"`
	// DirectUs and DetourUs are the median round trips of one byte to the
	// bucket's current server, and through it to the one before,
	// microseconds; AddedUs is the difference.
	DirectUs float64 `json:"direct_us"`
	DetourUs float64 `json:"detour_us"`
	AddedUs  float64 `json:"added_us"`
	// AddedP95Us is the difference of the 95th percentiles.
	AddedP95Us float64 `json:"added_p95_us"`
	Timing
}

// detourRequest is a line that the measuring client reads.
type detourRequest struct {
	// Open makes that many connections more to Endpoint, for Group.
	Open     int    `json:"open,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Group    int    `json:"group,omitempty"`
	// Measure asks both groups' connections this often, in turns, and forgets
	// the first WarmUp answers.
	Measure int `json:"measure,omitempty"`
	WarmUp  int `json:"warm_up,omitempty"`
}

// detourAnswer is what it answers.
type detourAnswer struct {
	// Server answered the connections just opened.
	Server string `json:"server,omitempty"`
	// Samples are round trips in nanoseconds, by group.
	Samples [2][]int64 `json:"samples"`
}

// RunDetour is the measuring client: it answers each request that it reads
// from in, and ends with in.
func RunDetour(in io.Reader, out io.Writer) error {
	runtime.LockOSThread()
	requests, answers := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var groups [2][]int // sockets
	for {
		var r detourRequest
		if err := requests.Decode(&r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var a detourAnswer
		for range r.Open {
			socket, server, err := openEcho(r.Endpoint)
			if err != nil {
				return err
			}
			if a.Server != "" && a.Server != server {
				return fmt.Errorf("connections of one group went to %s and %s", a.Server, server)
			}
			a.Server = server
			groups[r.Group&1] = append(groups[r.Group&1], socket)
		}
		if r.Measure > 0 {
			if len(groups[0]) == 0 || len(groups[1]) == 0 {
				return errors.New("nothing to measure: a group has no connections")
			}
			for i := range r.Measure + r.WarmUp {
				first := i / len(groups[0]) % 2 // neither always follows the other
				for _, g := range []int{first, 1 - first} {
					took, err := ping(groups[g][i%len(groups[g])])
					if err != nil {
						return err
					}
					if i >= r.WarmUp {
						a.Samples[g] = append(a.Samples[g], took.Nanoseconds())
					}
				}
			}
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
}

// openEcho opens a connection and asks its server to echo. The socket blocks:
// the runtime's poller would add more to each round trip than a detour does.
func openEcho(endpoint string) (socket int, server string, err error) {
	conn, err := net.DialTimeout("tcp", endpoint, dialTimeout)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: lab\r\n\r\n", detourPath); err != nil {
		return 0, "", err
	}
	head := make([]byte, 0, 256)
	for !slices.Equal(head[max(0, len(head)-4):], []byte("\r\n\r\n")) {
		if len(head) == cap(head) {
			return 0, "", fmt.Errorf("%s: no answer that echoes: %q", endpoint, head)
		}
		n, err := conn.Read(head[len(head) : len(head)+1])
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w after %q", endpoint, err, head)
		}
		head = head[:len(head)+n]
	}
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return 0, "", err
	}
	defer file.Close()
	if socket, err = unix.Dup(int(file.Fd())); err != nil {
		return 0, "", err
	}
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	if err := errors.Join(unix.SetNonblock(socket, false), unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)); err != nil {
		return 0, "", err
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), nil)
	if err != nil {
		return 0, "", fmt.Errorf("%s: %w", endpoint, err)
	}
	return socket, answer.Header.Get(serverHeader), nil
}

// ping sends a byte and waits for it.
func ping(socket int) (time.Duration, error) {
	b := [1]byte{'x'}
	began := time.Now()
	if _, err := unix.Write(socket, b[:]); err != nil {
		return 0, fmt.Errorf("ask for an echo: %w", err)
	}
	for {
		n, err := unix.Read(socket, b[:])
		took := time.Since(began)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("await an echo: %w", err)
		case n == 0:
			return 0, errors.New("await an echo: the connection ended")
		default:
			return took, nil
		}
	}
}

// detour measures every VIP, when nothing else goes on: with connections of
// the last server, then every bucket goes to the first one, then connections
// of that one.
func (r *runner) detour(ctx context.Context, c *churn) error {
	servers := r.lab.servers()
	old, next := servers[len(servers)-1], servers[0]
	var clients []detourClient
	for _, v := range r.lab.VIPs {
		p, err := r.lab.startPiped(ctx, "client", "detour", "the measuring client")
		if err != nil {
			return err
		}
		d := detourClient{p}
		defer d.stop()
		clients = append(clients, d)
		if err := d.open(v, 1, old); err != nil {
			return err
		}
	}
	if err := within(ctx, func(ctx context.Context) error { return c.replace(ctx, old, next) }); err != nil {
		return err
	}
	for i, v := range r.lab.VIPs {
		if err := clients[i].open(v, 0, next); err != nil {
			return err
		}
		var d Detour
		for block := range detourBlocks {
			a, err := clients[i].ask(detourRequest{Measure: detourRounds, WarmUp: detourWarmUp})
			if err != nil {
				return fmt.Errorf("measure the detour of %s: %w", v.Name, err)
			}
			if direct := quantile(a.Samples[0], 0.5); block == 0 || direct < d.DirectUs {
				d = Detour{Run: r.result.Runs[i].Name(), Rounds: detourRounds, Blocks: detourBlocks, Connections: detourConnections,
					DirectUs: direct, DetourUs: quantile(a.Samples[1], 0.5)}
				d.AddedUs = d.DetourUs - d.DirectUs
				d.AddedP95Us = quantile(a.Samples[1], 0.95) - quantile(a.Samples[0], 0.95)
			}
		}
		d.Timing = r.timed(fmt.Sprintf("%s: the detour's addition at the median, µs", d.Run), d.AddedUs, maxDetour)
		r.result.Detours = append(r.result.Detours, d)
	}
	return nil
}

// quantile of nanoseconds, in microseconds.
func quantile(ns []int64, q float64) float64 {
	if len(ns) == 0 {
		return 0
	}
	slices.Sort(ns)
	return float64(ns[int(q*float64(len(ns)-1))]) / 1e3
}

// detourClient is a measuring client in the client's namespace.
type detourClient struct{ *piped }

// ask sends a request and waits for its answer.
func (d detourClient) ask(r detourRequest) (detourAnswer, error) {
	var a detourAnswer
	if err := json.NewEncoder(d.input).Encode(r); err != nil {
		return a, err
	}
	if err := d.output.Decode(&a); err != nil {
		d.stop()
		return a, fmt.Errorf("%w: %s", err, d.errors)
	}
	return a, nil
}

// open opens connections, which a server must answer.
func (d detourClient) open(v VIP, group int, server string) error {
	a, err := d.ask(detourRequest{Open: detourConnections, Endpoint: v.Endpoint(), Group: group})
	if err != nil {
		return fmt.Errorf("open connections to %s: %w", v.Name, err)
	}
	if a.Server != server {
		return fmt.Errorf("%s answers at %s, and every bucket is %s's", a.Server, v.Name, server)
	}
	return nil
}

// stop ends the client.
func (d detourClient) stop() {
	d.input.Close()
	_ = d.cmd.Wait()
}
