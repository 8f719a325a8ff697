package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/experiment"
)

// Fig5Options are those of a run of Cheetah's figure 5.
type Fig5Options struct {
	// Rates are new connections a second, in the order they are run.
	Rates []int
	// Live is how many connections are open all the time.
	Live int
	// PerConnection is how many packets a client sends in a connection at FullRate new
	// ones a second; this and FullRate set the packet rate, which is one for all rates.
	PerConnection int
	// Rounds is how often each way is measured at each rate; at least MinRounds.
	Rounds int
	// Packets of one round; 0: 1,048,576.
	Packets int
	// Progress is called with what is done next. May be nil.
	Progress func(what string)
}

// FullRate is the rate at which a connection has PerConnection packets: the paper's
// highest.
const FullRate = 640_000

// Bounds of options.
const (
	Fig5MinLive = 1 << 12
	Fig5MaxLive = 1 << 23
	Fig5MinPer  = 4 // SYN, the handshake's last, one of data, FIN
)

// Fig5Defaults are the paper's rates and an issue's million connections. A client that
// fetches 8 KB sends eight packets: SYN, ACK, request, three ACKs of six segments, FIN
// and ACK. The paper does not say how many.
func Fig5Defaults() Fig5Options {
	return Fig5Options{Rates: []int{5_000, 40_000, 160_000, 640_000}, Live: 1_000_000, PerConnection: 8, Rounds: MinRounds}
}

// PacketRate is the clients' packets a second.
func (o Fig5Options) PacketRate() int { return FullRate * o.PerConnection }

// Memory is about how many bytes a run takes (measured: 520 a connection, and what does
// not depend on them).
func (o Fig5Options) Memory() int { return 600*o.Live + 400<<20 }

// Check says which option is wrong, and what it may be.
func (o Fig5Options) Check() error {
	switch {
	case len(o.Rates) == 0:
		return errors.New("--rates: none is given")
	case o.Live < Fig5MinLive || o.Live > Fig5MaxLive:
		return fmt.Errorf("--live %d: must be %d to %d", o.Live, Fig5MinLive, Fig5MaxLive)
	case o.PerConnection < Fig5MinPer || o.PerConnection > 1000:
		return fmt.Errorf("--packets %d: must be %d to 1000", o.PerConnection, Fig5MinPer)
	case o.Rounds < MinRounds:
		return fmt.Errorf("--rounds %d: a median needs at least %d", o.Rounds, MinRounds)
	}
	for _, rate := range o.Rates {
		if rate < 1 || rate > o.PacketRate()/Fig5MinPer {
			return fmt.Errorf("--rates %d: must be 1 to %d, a quarter of all packets, which are %d a second (--packets)", rate, o.PacketRate()/Fig5MinPer, o.PacketRate())
		}
	}
	return nil
}

// Fig5Result is what `fairlead bench fig5 -o json` prints.
type Fig5Result struct {
	experiment.Head
	CPU    string  `json:"cpu"`
	TSCHz  float64 `json:"tsc_hz"` // cycles a second; 0: this machine has no such counter
	Load   string  `json:"load"`   // the machine's load averages when it began
	Rounds int     `json:"rounds"`
	Live   int     `json:"live"`
	// PerConnection, PacketRate: see Fig5Options.
	PerConnection int `json:"packets_a_connection"`
	PacketRate    int `json:"packets_a_second"`
	// MemoryBytes is what the programs' maps take.
	MemoryBytes int           `json:"memory_bytes"`
	Points      []Fig5Point   `json:"runs"`
	Orders      []Fig5Compare `json:"orders"`
}

// Fig5Point is a way of a packet at a rate. Times are nanoseconds a packet, the harness
// subtracted: the median over the rounds, the least and the most.
type Fig5Point struct {
	Name   string  `json:"name"`
	Rate   int     `json:"new_a_second"`
	NS     float64 `json:"ns"`
	Min    float64 `json:"ns_min"`
	Max    float64 `json:"ns_max"`
	Cycles float64 `json:"cycles"` // of the time stamp counter
	Ratio  float64 `json:"ratio"`  // to the floor at this rate
	Paper  float64 `json:"paper_cycles,omitempty"`
	Missed float64 `json:"missed"` // share of packets of open connections that found no entry of theirs, median
}

// Fig5 measures. It needs root. With ErrInterrupted comes the result of the rounds that
// were whole, nil if there is none.
func Fig5(ctx context.Context, o Fig5Options) (*Fig5Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("loading programs needs privileges: run as root")
	}
	free := available()
	if free > 0 && free < o.Memory() {
		return nil, fmt.Errorf("--live %d takes about %d MB of memory, and %d are available: try --live %d",
			o.Live, o.Memory()>>20, free>>20, max(Fig5MinLive, o.Live*free/o.Memory()/2))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unpin, err := pin()
	if err != nil {
		return nil, err
	}
	defer unpin()
	cpuNumber, err := lastCPU()
	if err != nil {
		return nil, err
	}
	r := &Fig5Result{Head: experiment.Begin("bench fig5", seed), CPU: cpu(), TSCHz: tscHz(), Load: load(), Rounds: o.Rounds,
		Live: o.Live, PerConnection: o.PerConnection, PacketRate: o.PacketRate()}
	m := &fig5Run{o: o, ctx: ctx, result: r, tell: o.Progress}
	if m.tell == nil {
		m.tell = func(string) {}
	}
	m.tell("loading programs")
	if m.rig, err = openFig5Rig(o.Live, cpuNumber); err != nil {
		return nil, err
	}
	defer m.rig.close()
	if err := m.prepare(); err != nil {
		return nil, err
	}
	if r.MemoryBytes, err = m.rig.memory(); err != nil {
		return nil, err
	}
	for _, rate := range o.Rates {
		if err = m.measure(rate); err != nil {
			err = fmt.Errorf("at %d new connections a second: %w", rate, err)
			break
		}
	}
	if err != nil && (!errors.Is(err, ErrInterrupted) || len(r.Points) == 0) {
		return nil, err
	}
	r.Orders = compare(r.Points)
	r.End()
	return r, err
}

type fig5Run struct {
	o      Fig5Options
	ctx    context.Context
	rig    *fig5Rig
	s      *stream
	result *Fig5Result
	tell   func(string)
}

// prepare opens the connections, and lets as many go and come.
func (m *fig5Run) prepare() error {
	m.s = newStream(m.o.Live, int(m.rig.by[0].c.Maps["seats"].MaxEntries()), vips["rr"].addr)
	send := func(packets []fig5ScriptPacket) error {
		if err := m.ctx.Err(); err != nil {
			return fmt.Errorf("%w before the first round was whole: nothing is measured", ErrInterrupted)
		}
		if err := m.rig.load(packets); err != nil {
			return err
		}
		for _, w := range fig5Ways {
			if !w.keeps {
				continue
			}
			p, program := m.rig.of(w)
			if _, err := m.rig.time(p, program, w.vip, xdpTX, len(packets), m.s.now); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
		return nil
	}
	m.tell("opening connections")
	if err := m.s.establish(fig5Script, send); err != nil {
		return fmt.Errorf("open the connections: %w", err)
	}
	m.tell("letting as many close and open")
	if err := m.s.age(fig5Script, send); err != nil {
		return fmt.Errorf("let connections close and open: %w", err)
	}
	return nil
}

// measure runs all ways at a rate, in turns.
func (m *fig5Run) measure(rate int) error {
	times, missed := map[string][]float64{}, map[string][]float64{}
	packets := cmp.Or(m.o.Packets, 1<<20)
	script := make([]fig5ScriptPacket, min(fig5Script, max(packets/4, packetsPerRun)/packetsPerRun*packetsPerRun))
	parts := max(packets/len(script), 1)
	var stopped error
	// Round 0 warms up, and is not counted.
rounds:
	for round := range m.o.Rounds + 1 {
		m.tell(fmt.Sprintf("%d new connections a second: round %d of %d", rate, round, m.o.Rounds))
		best := map[string]float64{}
		keep := func(name string, ns float64) {
			if was, ok := best[name]; !ok || ns < was {
				best[name] = ns
			}
		}
		for range parts {
			now := m.s.now
			opened := m.s.fill(script, rate, m.o.PacketRate())
			if err := m.rig.load(script); err != nil {
				return err
			}
			ns, err := m.rig.time(m.rig.by[0], "bench_none", "rr", xdpPass, len(script), now)
			if err != nil {
				return fmt.Errorf("measure the harness: %w", err)
			}
			keep("", ns)
			for _, w := range fig5Ways {
				if m.ctx.Err() != nil {
					stopped = fmt.Errorf("%w in round %d of %d", ErrInterrupted, round, m.o.Rounds)
					break rounds
				}
				ns, miss, err := m.rig.send(w, len(script), opened, now)
				if err != nil {
					return fmt.Errorf("measure %s: %w", w.name, err)
				}
				keep(w.name, ns)
				if round > 0 {
					missed[w.name] = append(missed[w.name], miss)
				}
			}
		}
		for _, w := range fig5Ways {
			if round > 0 {
				times[w.name] = append(times[w.name], best[w.name]-best[""])
			}
		}
	}
	if stopped != nil && len(times["floor"]) == 0 {
		return stopped
	}
	floor := median(times["floor"])
	if floor <= 0 {
		return fmt.Errorf("the floor measured %.1f ns: the machine is too noisy; try more rounds", floor)
	}
	for _, w := range fig5Ways {
		t := times[w.name]
		ns := median(t)
		m.result.Points = append(m.result.Points, Fig5Point{Name: w.name, Rate: rate, NS: ns, Min: slices.Min(t), Max: slices.Max(t),
			Cycles: ns * m.result.TSCHz / 1e9, Ratio: ns / floor, Paper: fig5Paper[w.name][rate], Missed: median(missed[w.name])})
	}
	return stopped
}

func load() string {
	b, _ := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); len(f) >= 3 {
		return strings.Join(f[:3], " ")
	}
	return ""
}

// available is the machine's memory that may be had, in bytes; 0: it does not say.
func available() int {
	b, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(b)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kb); n == 1 {
			return kb << 10
		}
	}
	return 0
}
