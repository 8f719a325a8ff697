package workload

import (
	"bufio"
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim"
)

// Flow is a connection that was recorded.
type Flow struct {
	// Start since the earliest of the record.
	Start, Duration     sim.Time
	Source, Destination netip.AddrPort
	Protocol            uint8 // wire.ProtoTCP or wire.ProtoUDP
	// Bytes of both directions, as far as they are known.
	Bytes int64
}

// Record is connections that a user recorded, in a flow file or a capture.
type Record struct {
	// Name of the file.
	Name string
	// Flows in the order of their start; one at least.
	Flows []Flow
	// Skipped counts packets of a capture that are of no use here: neither
	// TCP nor UDP, fragments, malformed.
	Skipped int
}

// OpenRecord reads a capture (a file that begins like one) or a flow file.
func OpenRecord(file string) (*Record, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readRecord(bufio.NewReaderSize(f, 1<<20), file)
}

func readRecord(r *bufio.Reader, file string) (*Record, error) {
	if captured(r) {
		record, err := ReadCapture(r, filepath.Base(file))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return record, nil
	}
	if formOf(r) == distributionForm {
		return nil, fmt.Errorf("%s: holds a distribution (# unit, # form), not connections; --lifetimes takes it", file)
	}
	return ReadFlowFile(r, file)
}

// RecordFlag is the value of a flag that takes a flow file or a capture:
//
//	f.Add("flows", &o.Flows, workload.FlowsUsage)
//
// The file is read while the flags are.
type RecordFlag struct{ *Record }

// FlowsUsage is the help of --flows, the same in all scenarios.
const FlowsUsage = "connections of this flow file (CSV) or capture (pcap) instead of drawn ones (fairlead sim workloads)"

// Set reads a file. A connection far from all others, as of a clock that was
// wrong, would have years simulated.
func (f *RecordFlag) Set(file string) error {
	r, err := OpenRecord(file)
	if err != nil {
		return err
	}
	if span := time.Duration(r.Span()); span > maxSpan {
		first, last := r.Flows[0], slices.MaxFunc(r.Flows, func(a, b Flow) int { return cmp.Compare(a.Start+a.Duration, b.Start+b.Duration) })
		return fmt.Errorf("%s: spans %s, from the first of %s to the end of %s; it must be %s or less: correct what is far from the rest, or cut it",
			file, span.Round(time.Second), first.Source, last.Source, maxSpan)
	}
	f.Record = r
	return nil
}

// maxSpan is as long as what is drawn may be.
const maxSpan = 24 * time.Hour

func (f *RecordFlag) String() string {
	if f.Record == nil {
		return ""
	}
	return f.Name
}

// Type is what help calls the value.
func (f *RecordFlag) Type() string { return "file" }

// captured tells whether a file begins as a pcap or pcapng file does.
func captured(r *bufio.Reader) bool {
	magic, _ := r.Peek(4) // what is shorter is none
	return slices.Contains([]string{"\xd4\xc3\xb2\xa1", "\x4d\x3c\xb2\xa1", "\xa1\xb2\xc3\xd4", "\xa1\xb2\x3c\x4d", "\x0a\x0d\x0d\x0a"}, string(magic))
}

// settle orders the flows and moves the earliest start to 0.
func (r *Record) settle() *Record {
	slices.SortStableFunc(r.Flows, func(a, b Flow) int { return int(min(1, max(-1, a.Start-b.Start))) })
	for i, first := 0, r.Flows[0].Start; i < len(r.Flows); i++ {
		r.Flows[i].Start -= first
	}
	return r
}

// Span is when the last connection ends.
func (r *Record) Span() sim.Time {
	var end sim.Time
	for _, f := range r.Flows {
		end = max(end, f.Start+f.Duration)
	}
	return end
}

// LastStart is when the last connection begins.
func (r *Record) LastStart() sim.Time { return r.Flows[len(r.Flows)-1].Start }

// Active is the mean number of connections that live at a time.
func (r *Record) Active() float64 {
	sum := 0.0
	for _, f := range r.Flows {
		sum += float64(f.Duration)
	}
	return sum / float64(max(1, r.Span()))
}

// Lifetimes is the distribution of the durations; nil if all are 0.
func (r *Record) Lifetimes() *Distribution {
	durations := make([]int64, len(r.Flows))
	for i, f := range r.Flows {
		durations[i] = int64(f.Duration)
	}
	slices.Sort(durations)
	if durations[len(durations)-1] == 0 {
		return nil
	}
	var values []int64
	var counts []float64
	for i, v := range durations {
		if i == 0 || v != durations[i-1] {
			values, counts = append(values, v), append(counts, 0)
		}
		counts[len(counts)-1]++
	}
	d := newDistribution(values, counts)
	d.Name, d.About, d.Source = r.Name, "lifetimes of the connections in "+r.Name, r.Name
	return d
}

// Arrivals are the record's connections, with the keys that balancers of a
// seed have for them.
func (r *Record) Arrivals(seed uint64) Arrivals {
	return &replay{r.Flows, fmt.Appendf(nil, "simulation %d", seed), map[vip]hash.Key{}}
}

type replay struct {
	flows  []Flow
	secret []byte
	keys   map[vip]hash.Key
}

type vip struct {
	address  netip.AddrPort
	protocol uint8
}

func (p *replay) Next() (Connection, bool) {
	if len(p.flows) == 0 {
		return Connection{}, false
	}
	f := p.flows[0]
	p.flows = p.flows[1:]
	return Connection{f.Start, f.Duration, p.key(f)}, true
}

// key is the program's hash of the flow.
func (p *replay) key(f Flow) uint64 {
	v := vip{f.Destination, f.Protocol}
	k, ok := p.keys[v]
	if !ok {
		k = cheetah.VIPKey(p.secret, v.address.Addr(), v.address.Port(), v.protocol)
		p.keys[v] = k
	}
	return hash.Tuple(k, f.Source, f.Destination.Port())
}
