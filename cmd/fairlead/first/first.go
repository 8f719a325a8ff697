// Package first makes the program start sooner: a change's packets wait for its command
// to start, and half of that was two things that happen while packages are initialised,
// before main. Packages are initialised by their paths, once what they import is (the Go
// specification says so): this one, which imports little, before etcd's.
//
//   - The collector ran once, through what is there for good.
//   - etcd's server registers a hundred metrics, each by a goroutine of its own, which
//     before main is a change of threads. They are kept instead, until there is a server.
package first

import (
	"errors"
	"os"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// commandGC is the collector's percentage for commands, which are short.
const commandGC = 400

var (
	percent = debug.SetGCPercent(-1)
	metrics = &kept{}
	usual   = prometheus.DefaultRegisterer
)

func init() { prometheus.DefaultRegisterer = metrics }

// Over has the collector run again. It is called when the program has begun; daemons
// then choose for themselves (package daemon).
func Over() {
	if _, set := os.LookupEnv("GOGC"); !set {
		percent = commandGC
	}
	debug.SetGCPercent(percent)
}

// Metrics registers what was kept: whoever runs a server of etcd calls it before.
func Metrics() {
	prometheus.DefaultRegisterer = usual
	for _, c := range metrics.take() {
		// Who registers a second time asks whether it is there already.
		if err := usual.Register(c); err != nil && !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
			panic(err)
		}
	}
}

// kept is a prometheus.Registerer that only remembers, until what it has is taken; then
// it is the usual one, for who has a reference to it.
type kept struct {
	mu         sync.Mutex
	collectors []prometheus.Collector
	taken      bool
}

func (k *kept) take() []prometheus.Collector {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.collectors
	k.collectors, k.taken = nil, true
	return all
}

// Register implements prometheus.Registerer.
func (k *kept) Register(c prometheus.Collector) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken {
		return usual.Register(c)
	}
	k.collectors = append(k.collectors, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (k *kept) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := k.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer; nobody takes back what was registered
// before main.
func (k *kept) Unregister(prometheus.Collector) bool { return false }
