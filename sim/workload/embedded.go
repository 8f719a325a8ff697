package workload

import (
	"bufio"
	"embed"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/fairlead/fairlead/sim"
)

//go:embed data/*.txt
var data embed.FS

// The published distributions. Lifetimes are those of connections.
var (
	// WebServer has lifetimes of mean 26.3 s (Cheetah, NSDI'20).
	WebServer = embedded("web-server")
	// WebServerSizes has answers of mean 6.172 KiB (Cheetah, NSDI'20).
	WebServerSizes = embedded("web-server-sizes")
	// Hadoop has lifetimes of mean 21.334 s (JET, CoNEXT'21).
	Hadoop = embedded("hadoop")
	// Downtime is how long a server stays away, 1,786 s in the mean (JET).
	Downtime = embedded("downtime")
)

// Distributions are all that have a name.
func Distributions() []*Distribution {
	return []*Distribution{WebServer, WebServerSizes, Hadoop, Downtime}
}

func embedded(name string) *Distribution {
	f, err := data.Open(path.Join("data", name+".txt"))
	if err == nil {
		defer f.Close()
		var d *Distribution
		if d, err = Parse(f, name); err == nil {
			return d
		}
	}
	panic(err) // a file of this package's own, which its tests read
}

// Durations finds a distribution of durations by its name, or reads a user's
// file.
func Durations(nameOrFile string) (*Distribution, error) {
	var names []string
	for _, d := range Distributions() {
		if d.Name == nameOrFile && d.Sizes {
			return nil, fmt.Errorf("%s has sizes, where durations are wanted", d.Name)
		}
		if d.Name == nameOrFile {
			return d, nil
		}
		if !d.Sizes {
			names = append(names, d.Name)
		}
	}
	f, err := os.Open(nameOrFile)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("neither a workload (%s) nor a file", strings.Join(names, ", "))
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	return durations(bufio.NewReaderSize(f, maxLine), nameOrFile)
}

// durations reads a distribution's file, or the lifetimes of recorded
// connections.
func durations(r *bufio.Reader, file string) (*Distribution, error) {
	if captured(r) || formOf(r) == flowForm {
		record, err := readRecord(r, file)
		if err != nil {
			return nil, err
		}
		if d := record.Lifetimes(); d != nil {
			return d, nil
		}
		return nil, fmt.Errorf("%s: no connection lasts at all; record some that have more than one packet", file)
	}
	d, err := Parse(r, file)
	if err == nil && d.Sizes {
		return nil, fmt.Errorf("%s has sizes, where durations are wanted; give a unit of time: # unit: s", file)
	}
	return d, err
}

// Flag is the value of a flag that takes the name of a distribution of
// durations or a user's file:
//
//	f.Add("lifetimes", &o.Lifetimes, workload.LifetimesUsage)
//
// The file is read while the flags are.
type Flag struct{ *Distribution }

// LifetimesUsage is the help of --lifetimes, the same in all scenarios.
const LifetimesUsage = "how long connections live: web-server, hadoop or a file, of a distribution or of connections (fairlead sim workloads)"

// Set takes a name or a file. Lifetimes so short that nothing could be under
// way are most often of a wrong unit, and would take for ever.
func (f *Flag) Set(nameOrFile string) error {
	d, err := Durations(nameOrFile)
	if err != nil {
		return err
	}
	if d.Mean() < minMean {
		return fmt.Errorf("%s has a mean of %.4g ms; it must be 1 ms or more: is its unit right?", nameOrFile, d.Mean()/float64(sim.Millisecond))
	}
	f.Distribution = d
	return nil
}

const minMean = float64(sim.Millisecond)

func (f *Flag) String() string {
	if f.Distribution == nil {
		return ""
	}
	return f.Name
}

// Type is what help calls the value.
func (f *Flag) Type() string { return "name|file" }
