package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// Part is what a process of its own does in a run.
type Part struct {
	Address
	// Watchers that it runs; 0: it is the balancer.
	Watchers int `json:"watchers"`
	// State is where the balancer keeps its state on disk.
	State   string `json:"state"`
	Servers int    `json:"servers"` // that there will be
	Buckets int    `json:"buckets"`
}

// Took is what a version cost one watcher or the balancer, as its process says it.
type Took struct {
	Watcher bool   `json:"watcher"`
	Version uint64 `json:"version"`
	Error   string `json:"error,omitempty"`
	// In milliseconds: see Version.
	Fetch   float64 `json:"fetch"`
	Read    float64 `json:"read"`
	Accept  float64 `json:"accept"`
	Apply   float64 `json:"apply"`
	InForce float64 `json:"in_force"`
	Plan    float64 `json:"plan"`
	Ways    float64 `json:"ways"`
	Lines   float64 `json:"lines"`
	Fill    float64 `json:"fill"`
	CPU     float64 `json:"cpu"`
	ReadCPU float64 `json:"read_cpu"`
	Bytes   uint64  `json:"bytes"`
	// Disk is in a line of its own, which may come long after the others.
	Disk float64 `json:"disk,omitempty"`

	inForce time.Time // the flip; zero: there is none
}

// crowd are the processes that watch.
type crowd struct {
	cmds    []*exec.Cmd
	inputs  []io.Closer
	reading sync.WaitGroup

	mu   sync.Mutex
	took []Took
	err  error
}

func startParts(ctx context.Context, o Options, at Address, state string) (*crowd, error) {
	c := &crowd{}
	parts := []Part{{Address: at, State: state, Servers: 2 * o.Servers, Buckets: o.Buckets}}
	if o.Watchers > 0 {
		parts = append(parts, Part{Address: at, Watchers: o.Watchers, Servers: 2 * o.Servers, Buckets: o.Buckets})
	}
	for _, p := range parts {
		if err := c.start(ctx, o.Self, p); err != nil {
			return nil, errors.Join(err, c.stop())
		}
	}
	return c, nil
}

func (c *crowd) start(ctx context.Context, self string, p Part) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "bench", "control", "--part", string(text))
	// It ends when its input does.
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	priority := 0
	if p.Watchers > 0 {
		priority = 19
	}
	ended, err := start(cmd, priority)
	if err != nil {
		return err
	}
	c.cmds, c.inputs = append(c.cmds, cmd), append(c.inputs, input)
	c.reading.Go(func() {
		defer ended()
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			var t Took
			err := json.Unmarshal(lines.Bytes(), &t)
			if err == nil && t.Error != "" {
				err = errors.New(t.Error)
			}
			c.mu.Lock()
			if err != nil {
				c.err = errors.Join(c.err, err)
			}
			c.took = append(c.took, t)
			c.mu.Unlock()
		}
	})
	return nil
}

// start starts cmd from a thread of its own, whose priority it inherits, and with which
// it would be killed: that stays until ended is called.
func start(cmd *exec.Cmd, priority int) (ended func(), err error) {
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	begun, end := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked
		err := error(nil)
		if priority != 0 {
			err = unix.Setpriority(unix.PRIO_PROCESS, 0, priority)
		}
		if err == nil {
			err = cmd.Start()
		}
		begun <- err
		<-end
	}()
	ended = sync.OnceFunc(func() { close(end) })
	if err := <-begun; err != nil {
		ended()
		return nil, err
	}
	return ended, nil
}

// stop ends them.
func (c *crowd) stop() (err error) {
	for _, in := range c.inputs {
		in.Close()
	}
	c.reading.Wait()
	for _, cmd := range c.cmds {
		if ended := cmd.Wait(); ended != nil {
			err = errors.Join(err, ended)
		}
	}
	return err
}

const crowdWait = 10 * time.Minute

// await waits until count daemons say that they go by a, and fails with what one of
// them fails with.
func (c *crowd) await(ctx context.Context, l *ledger.Ledger, a *controller.Assignment, count int) error {
	ctx, cancel := context.WithTimeout(ctx, crowdWait)
	defer cancel()
	digest := l.Digest(a)
	var failed error
	has := 0
	err := l.Await(ctx, func(said map[string]ledger.Report) bool {
		has = 0
		for _, r := range said {
			if r.Version == a.Version && r.Digest == digest {
				has++
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		failed = c.err
		return has == count || failed != nil
	})
	if failed != nil || err != nil {
		return fmt.Errorf("version %d: %d of %d have it: %w", a.Version, has, count, errors.Join(failed, err))
	}
	return nil
}

// fill takes over what v cost those that had it, when all have ended.
func (c *crowd) fill(v *Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var cpu []float64
	for _, t := range c.took {
		switch {
		case t.Version != v.Version:
		case t.Disk > 0:
			v.DiskMS = t.Disk
		case t.Watcher:
			cpu = append(cpu, t.CPU)
		default:
			v.FetchMS, v.ReadMS, v.AcceptMS, v.ApplyMS, v.InForceMS = t.Fetch, t.Read, t.Accept, t.Apply, t.InForce
			v.ReadBytes = t.Bytes
			v.PlanMS, v.WaysMS, v.LinesMS, v.FillMS, v.CPUMS, v.ReadCPUMS = t.Plan, t.Ways, t.Lines, t.Fill, t.CPU, t.ReadCPU
		}
	}
	if slices.Sort(cpu); len(cpu) > 0 {
		v.WatcherCPUMS = cpu[len(cpu)/2]
	}
}
