// Package experiment is what the results of all experiments have in common, be
// they of the lab or of bench.
package experiment

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Head is what an experiment's result begins with; its runs follow. The JSON
// form is stable.
type Head struct {
	Scenario string  `json:"scenario"`
	Seed     uint64  `json:"seed"`
	Kernel   string  `json:"kernel"`
	Seconds  float64 `json:"seconds"`
	// Verdict is why the experiment failed, empty if it did not.
	Verdict []string `json:"verdict,omitempty"`

	began time.Time
}

// Begin is the head of an experiment that begins now.
func Begin(scenario string, seed uint64) Head {
	return Head{Scenario: scenario, Seed: seed, Kernel: Kernel(), began: time.Now()}
}

// End says that it is over.
func (h *Head) End() { h.Seconds = time.Since(h.began).Seconds() }

// Kernel is the release of the one that runs.
func Kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Random draws what is random of an experiment: bytes, and numbers through
// rand.New.
func Random(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

// Ports are local ports of TCP for connections, in an order drawn from random and
// each once: none of those that the kernel chooses from.
func Ports(random rand.Source) (next func() *net.TCPAddr) {
	const first, count = 10_000, 20_000
	order, i := rand.New(random).Perm(count), 0
	return func() *net.TCPAddr {
		i++
		return &net.TCPAddr{Port: first + order[i%count]}
	}
}
