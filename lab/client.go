package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/lab/netspace"
)

// loadSlack is how long a load may take beyond its plan: the last answers'
// timeouts, and a busy machine.
const loadSlack = 90 * time.Second

// loadClient is the process in the client's namespace that carries out a
// plan.
type loadClient struct {
	*piped
	// asked counts the notices Ask.
	asked int

	mu       sync.Mutex
	latest   LoadReport
	failures []Failure
	err      error
	done     chan struct{}
}

// startLoad starts the plan in the client's namespace.
func (l *Lab) startLoad(ctx context.Context, plan LoadPlan) (*loadClient, error) {
	slack := loadSlack + seconds(plan.Beyond)
	ctx, cancel := context.WithTimeoutCause(ctx, seconds(plan.Seconds)+slack,
		fmt.Errorf("the load did not end %v after its plan", slack))
	piped, err := l.startPiped(ctx, "client", "load", "load")
	if err != nil {
		cancel()
		return nil, err
	}
	c := &loadClient{piped: piped, done: make(chan struct{})}
	go func() {
		defer cancel()
		defer close(c.done)
		err := c.follow()
		c.input.Close()
		if waitErr := c.cmd.Wait(); waitErr != nil {
			err = fmt.Errorf("load: %w: %s", errors.Join(waitErr, context.Cause(ctx)), c.errors)
		}
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
	}()
	if err := json.NewEncoder(c.input).Encode(plan); err != nil {
		return nil, fmt.Errorf("send plan to load: %w", err)
	}
	return c, nil
}

// follow keeps the latest report until the last.
func (c *loadClient) follow() error {
	for {
		var r LoadReport
		if err := c.output.Decode(&r); err != nil {
			return fmt.Errorf("load ended without a last report: %w", err)
		}
		c.mu.Lock()
		c.failures = append(c.failures, r.Failures...)
		c.latest = r
		c.mu.Unlock()
		if r.Done {
			return nil
		}
	}
}

// report is the latest report.
func (c *loadClient) report() LoadReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// tell sends the load a notice. To one that has ended there is nothing to
// tell: then the error is why it ended, nil if it was at its end.
func (c *loadClient) tell(n LoadNotice) error {
	err := json.NewEncoder(c.input).Encode(n)
	if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) {
		_, err = c.wait()
	}
	if err != nil {
		return fmt.Errorf("tell the load: %w", err)
	}
	return nil
}

// stop ends the load at once: its connections are closed.
func (c *loadClient) stop() { c.input.Close() }

// ended says whether the load is over.
func (c *loadClient) ended() bool { return isClosed(c.done) }

// isClosed tells whether a channel on which nothing is sent is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait waits for the load's end and returns the last report with every
// failure.
func (c *loadClient) wait() (LoadReport, error) {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.latest
	last.Failures = c.failures
	sortFailures(last.Failures)
	return last, c.err
}

// piped is a process of this program in a machine's namespace, which reads
// JSON and writes it.
type piped struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *json.Decoder
	errors *tail
}

// startPiped starts one by its subcommand of lab; what names it in errors.
func (l *Lab) startPiped(ctx context.Context, machine, command, what string) (*piped, error) {
	p := &piped{cmd: exec.CommandContext(ctx, l.Program, "lab", command), errors: new(tail)}
	p.cmd.Stderr = p.errors
	var err error
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.output = json.NewDecoder(output)
	if err := netspace.Start(l.namespace(machine), p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	return p, nil
}

// tail keeps the last kilobyte that is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-1024):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// loads are clients that run side by side, as one.
type loads []*loadClient

// takeIn adds another load's tallies; both may have connections to a target.
func (r *LoadReport) takeIn(o LoadReport) {
	for name, t := range o.Tallies {
		r.Tallies[name] = r.Tallies[name].add(t)
	}
}

// report adds up the latest reports; the time is the first one's.
func (l loads) report() LoadReport {
	whole := LoadReport{Tallies: map[string]Tally{}}
	for i, c := range l {
		r := c.report()
		if i == 0 {
			whole.Seconds = r.Seconds
		}
		whole.takeIn(r)
	}
	return whole
}

func (l loads) tell(n LoadNotice) error {
	var errs []error
	for _, c := range l {
		errs = append(errs, c.tell(n))
	}
	return errors.Join(errs...)
}

// ended says whether one of them is over.
func (l loads) ended() bool { return slices.ContainsFunc(l, (*loadClient).ended) }

// finished is closed when the last one is over.
func (l loads) finished() <-chan struct{} {
	for _, c := range l {
		if !c.ended() {
			return c.done
		}
	}
	closed := make(chan struct{})
	close(closed)
	return closed
}

// wait waits for the end of all.
func (l loads) wait() (LoadReport, error) {
	whole := LoadReport{Tallies: map[string]Tally{}, Done: true}
	var errs []error
	for _, c := range l {
		r, err := c.wait()
		errs = append(errs, err)
		whole.takeIn(r)
		whole.Failures = append(whole.Failures, r.Failures...)
		whole.Seconds = max(whole.Seconds, r.Seconds)
		whole.MissedResets += r.MissedResets
	}
	sortFailures(whole.Failures)
	return whole, errors.Join(errs...)
}
