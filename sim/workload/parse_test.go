package workload

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

// All three forms say the same, in any order but for the cumulated one's.
func TestForms(t *testing.T) {
	for _, file := range []string{
		"# unit: ms\n# form: counts\n20 2\n10 1\n\n20 1 # again\n30 0\n",
		"# unit: us\n# form: probabilities\n10000 .25\n20000 .75\n",
		"# unit: ms   ns, us, ms, s, min or h\n# form: counts   or probabilities\n10 1\n20 3\n", // as in docs/simulation.md
		"#unit:s\n#form:cumulated\n.01 .25\n.02 1\n",
		"\ufeff# unit: ms\r\n# form: counts\r\n10,1\r\n20, 3\r\n",
	} {
		d, err := Parse(strings.NewReader(file), "file")
		if err != nil {
			t.Error(err)
			continue
		}
		if d.Len() != 2 || math.Abs(d.Mean()-17.5e6) > 1e-3 || d.Tail(10*sim.Millisecond) != .75 {
			t.Errorf("%q: %d values, mean %v, tail %v", file, d.Len(), d.Mean(), d.Tail(10*sim.Millisecond))
		}
	}
}

func TestBadDistributions(t *testing.T) {
	const counts, shares, sums = "# unit: s\n# form: counts\n", "# unit: s\n# form: probabilities\n", "# unit: s\n# form: cumulated\n"
	for file, want := range map[string]string{
		"":                         "f.txt:1: no figures; write lines",
		counts:                     "f.txt:2: no figures",
		"1 2\n":                    "f.txt:1: figures before their unit; write above them: # unit: s",
		"# unit: s\n1 2\n":         "f.txt:2: figures before their form",
		"# unit: sec\n":            `f.txt:1: unit "sec": must be one of ns, us`,
		"# unit:\n":                `f.txt:1: unit "": must be one of ns, us`,
		"# form: pdf\n":            `f.txt:1: form "pdf": must be counts`,
		counts + "# unit: ms\n":    `f.txt:3: a second "unit"`,
		counts + "1\n":             `f.txt:3: "1": 1 columns; write a value and its count`,
		counts + "1 2 3\n":         `f.txt:3: "1 2 3": 3 columns`,
		counts + "one 2\n":         `f.txt:3: value "one" is no number`,
		counts + "NaN 2\n":         `f.txt:3: value "NaN" is no number`,
		counts + "-1 2\n":          "f.txt:3: value -1 is negative",
		counts + "1e9 2\n":         "f.txt:3: value 1e9 s is too much",
		counts + "1 many\n":        `f.txt:3: count "many" is no number`,
		counts + "1 inf\n":         `f.txt:3: count "inf" is no number`,
		counts + "1 1e308\n":       "f.txt:3: count 1e308 is too much",
		counts + "1 -2\n":          "f.txt:3: count -2 is negative",
		counts + "0 5\n":           "f.txt:3: all values that happen are 0",
		counts + "7 0\n":           "f.txt:3: all values that happen are 0",
		shares + "1 .5\n2 .4\n":    "f.txt:4: probabilities sum up to 0.9, not to 1; correct them, or say: # form: counts",
		shares + "1 .5\n2 .6\n":    "f.txt:4: probabilities sum up to 1.1",
		sums + "1 .5\n2 .9\n":      "f.txt:4: the last cumulated probability is .9, not 1",
		sums + "1 .5\n2 1.1\n":     "f.txt:4: cumulated probability 1.1 is over 1",
		sums + "1 .5\n2 .4\n3 1\n": "f.txt:4: cumulated probability .4 is less than the one before, .5; sort",
		sums + "2 .5\n1 1\n":       "f.txt:4: values of a cumulated distribution must rise",
	} {
		_, err := Parse(strings.NewReader(file), "f.txt")
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %v\nwant %s…", file, err, want)
		}
	}
}

func TestFlag(t *testing.T) {
	var f Flag
	if err := f.Set("hadoop"); err != nil || f.String() != "hadoop" || f.Distribution != Hadoop {
		t.Errorf("%q, %v", f.String(), err)
	}
	file := filepath.Join(t.TempDir(), "lives.txt")
	if err := os.WriteFile(file, []byte("# unit: s\n# form: counts\n1 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Set(file); err != nil || f.Mean() != 1e9 {
		t.Errorf("%q, %v", f.String(), err)
	}
	for name, want := range map[string]string{
		"web-serve":        "neither a workload (web-server, hadoop, downtime) nor a file",
		"web-server-sizes": "web-server-sizes has sizes",
		t.TempDir():        "is a directory",
	} {
		if err := f.Set(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// What cannot be run in any time is refused in a line that says why.
func TestEndlessFiles(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	const row = ",1,192.0.2.7,51234,203.0.113.80,443,tcp,60\n"
	far := put("far.csv", flowHead+"0"+row+"1700000000"+row)
	flows := put("flows.csv", flowHead+"0"+row+"10,3,192.0.2.9,51234,203.0.113.80,443,tcp,60\n")
	short := put("short.txt", "# unit: ns\n# form: counts\n1 1\n")
	binary := put("binary", strings.Repeat("\x00", 1<<20))
	var lives Flag
	var own RecordFlag
	for want, err := range map[string]error{
		"mean of 1e-06 ms": lives.Set(short),
		"spans 472222h":    own.Set(far),
		"--lifetimes":      own.Set(short),
		"65,536 bytes or":  own.Set(binary),
		"65,536 bytes":     lives.Set(binary),
		"":                 own.Set(flows),
	} {
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A site's own lifetimes, of its own connections.
	if err := lives.Set(flows); err != nil || lives.Mean() != 2e9 || lives.Len() != 2 {
		t.Errorf("lifetimes of a flow file: %v", err)
	}
}
