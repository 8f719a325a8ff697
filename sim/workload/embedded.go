package workload

import (
	"embed"
	"fmt"
	"os"
	"path"
	"strings"
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
	d, err := Parse(f, nameOrFile)
	if err == nil && d.Sizes {
		return nil, fmt.Errorf("%s has sizes, where durations are wanted; give a unit of time: # unit: s", nameOrFile)
	}
	return d, err
}

// Flag is the value of a flag that takes the name of a distribution of
// durations or a user's file:
//
//	f.Var(&o.Lifetimes, "lifetimes", workload.LifetimesUsage)
//
// The file is read while the flags are.
type Flag struct{ *Distribution }

// LifetimesUsage is the help of --lifetimes, the same in all scenarios.
const LifetimesUsage = "how long connections live: web-server, hadoop or a file (fairlead sim workloads)"

func (f *Flag) Set(nameOrFile string) (err error) {
	f.Distribution, err = Durations(nameOrFile)
	return err
}

func (f *Flag) String() string {
	if f.Distribution == nil {
		return ""
	}
	return f.Name
}

// Type is what help calls the value.
func (f *Flag) Type() string { return "name|file" }
