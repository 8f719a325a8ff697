package bench

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Names of the programs that a case can run.
const (
	progNone  = "bench_none"
	progFloor = "bench_floor"
	progLB    = "bench_lb"
	progLRU   = "bench_lru"
)

// loop is a balancer's programs with a case of their own: what each packet of a loop
// writes is one CPU's.
type loop struct {
	programs    map[string]*ebpf.Program
	state, next *ebpf.Variable
	cpu         int
}

// own is the balancer's first loop.
func (b *balancer) own() *loop {
	return &loop{programs: map[string]*ebpf.Program{progNone: b.o.BenchNone, progFloor: b.o.BenchFloor, progLB: b.o.BenchLb, progLRU: b.o.BenchLru},
		state: b.o.BenchCase, next: b.o.BenchNext}
}

// second is another loop over the balancer's own maps, for a CPU.
func (b *balancer) second(cpu int) (l *loop, release func(), err error) {
	spec := b.spec.Copy()
	replaced := map[string]*ebpf.Map{}
	for name, m := range b.shared {
		replaced[name] = m
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replaced})
	if err != nil {
		return nil, nil, fmt.Errorf("load the program for CPU %d: %w", cpu, err)
	}
	unhold, err := hold(c.Programs[progNone], c.Programs[progLB])
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return &loop{programs: c.Programs, state: c.Variables["bench_case"], next: c.Variables["bench_next"], cpu: cpu}, func() { unhold(); c.Close() }, nil
}

// timed takes one part of a case on as many CPUs as it wants, each of which has its share of
// the flows.
func (b *balancer) timed(program string, c lbCase, action uint32, part, packets int) (float64, error) {
	first := uint32(slices.Index(b.sets, c.set))*flowCount + c.first
	if c.cpus < 2 {
		return b.own().measure(program, c, first, action, part*packets, packets)
	}
	ns, errs := make([]float64, c.cpus), make([]error, c.cpus)
	var ready, done sync.WaitGroup
	ready.Add(c.cpus)
	for i := range c.cpus {
		done.Go(func() {
			runtime.LockOSThread() // it ends with the goroutine
			var one unix.CPUSet
			one.Set(b.cpus[i].cpu)
			errs[i] = unix.SchedSetaffinity(0, &one)
			ready.Done()
			ready.Wait()
			if errs[i] == nil {
				share := packets / c.cpus
				ns[i], errs[i] = b.cpus[i].measure(program, c, first, action, part*packets+i*share, share)
			}
		})
	}
	done.Wait()
	sum := 0.0 // packets a nanosecond of all
	for i := range ns {
		if errs[i] != nil {
			return 0, fmt.Errorf("CPU %d: %w", b.cpus[i].cpu, errs[i])
		}
		sum += 1 / ns[i]
	}
	return 1 / sum, nil
}

// measure takes so many packets of a case, of its flows that begin at first from the one
// called next on.
func (l *loop) measure(program string, c lbCase, first, action uint32, next, packets int) (float64, error) {
	frame, family, saddr, ports, ecr := c.frame()
	state := lbBenchRun{First: first, Mask: c.flows - 1, Length: uint32(len(frame)), Family: family,
		AtSaddr: saddr, AtPorts: ports, AtEcr: ecr, Salt: salt(),
		Saddr: binary.LittleEndian.Uint32(frame[26:]), Check: uint32(binary.LittleEndian.Uint16(frame[24:]))}
	if err := l.state.Set(state); err != nil {
		return 0, err
	}
	if err := l.next.Set(uint32(next)); err != nil {
		return 0, err
	}
	runs := packets / packetsPerRun
	_, d, err := l.programs[program].Benchmark(frame, runs, nil)
	if err != nil {
		return 0, err
	}
	if err := l.state.Get(&state); err != nil {
		return 0, err
	}
	if n := state.Verdicts[action]; n < uint32(runs*packetsPerRun) {
		return 0, fmt.Errorf("only %d of %d packets had verdict %d (%v): this measures something else",
			n, runs*packetsPerRun, action, state.Verdicts)
	}
	return perPacket(d), nil
}
