package workload

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/wire"
)

// FuzzRecord: a user's connections, of a flow file or a capture, are refused by
// the file's name, or are in order and no more than there is room for in the file.
func FuzzRecord(f *testing.F) {
	const row = "1700000012.5,0,192.0.2.7,51234,203.0.113.80,443,tcp,60\n"
	for _, text := range []string{flowHead + row, "# of the edge\n" + flowHead + row + strings.ReplaceAll(row, "192.0.2.7", "::1"), "\ufeff" + flowHead,
		flowHead + `"1e3", .5,192.0.2.7,1,203.0.113.80,2,udp,9` + "\n", "# unit: s\n# form: counts\n1 2\n"} {
		f.Add([]byte(text))
	}
	var b bytes.Buffer
	if err := wire.WritePcap(&b, []wire.Captured{segment(10, client, server, wire.SYN), segment(11, server, client, wire.SYN|wire.ACK), segment(900, client, server, wire.RST)}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := readRecord(bufio.NewReader(bytes.NewReader(data)), "f.csv")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.csv:") {
				t.Errorf("error %q", err)
			}
			return
		}
		if len(r.Flows) == 0 || len(r.Flows) > len(data) || r.Flows[0].Start != 0 || r.Span() < 0 {
			t.Fatalf("%d flows out of %d bytes, span %d", len(r.Flows), len(data), r.Span())
		}
		for i, flow := range r.Flows {
			if flow.Duration < 0 || flow.Bytes < 0 || i > 0 && flow.Start < r.Flows[i-1].Start ||
				!flow.Source.IsValid() || flow.Source.Addr().Is4() != flow.Destination.Addr().Is4() {
				t.Errorf("flow %d: %+v", i, flow)
			}
		}
		if d := r.Lifetimes(); d != nil && (d.Len() > len(r.Flows) || d.Longest() == 0) {
			t.Errorf("%d lifetimes of %d flows", d.Len(), len(r.Flows))
		}
	})
}

// FuzzDistribution: a distribution's file is refused by its name, or its steps
// are in order and their shares are a whole.
func FuzzDistribution(f *testing.F) {
	files, err := filepath.Glob("data/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no files: %v", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{"# unit: ms\n# form: counts\n20 2\n10 1\n\n20 1 # again\n30 0\n", "# unit: h\n# form: probabilities\n1 .25\n2 .75\n",
		"#unit:s\n#form:cumulated\n.01 .25\n.02 1\n", "# unit: MiB\r\n# form: counts\r\n10,1e300\r\n20, 1e300\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(bytes.NewReader(data), "f.txt")
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.txt:") {
				t.Errorf("error %q", err)
			}
			return
		}
		sum, last := 0.0, int64(-1)
		for i := range d.Len() {
			value, share := d.Step(i)
			if int64(value) <= last || !(share >= 0) {
				t.Errorf("step %d: %d after %d, share %v", i, value, last, share)
			}
			sum, last = sum+share, int64(value)
		}
		if d.Len() == 0 || math.Abs(sum-1) > 1e-6 || !(d.Mean() >= 0) || math.IsInf(d.Mean(), 0) {
			t.Errorf("%d steps, shares %v, mean %v", d.Len(), sum, d.Mean())
		}
	})
}
