package pcc

import (
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/sim"
)

// tags is a cookie of constant size (Cheetah, NSDI'20, App. B): a tag that
// names one of the last configurations of working servers, and which of some
// hashes of the connection is to be looked up there. One balancer.
type tags struct {
	setup Setup
	// configurations that are remembered: a power of two. 1: the tag has no
	// bits, and the scheme is the bare hash.
	configurations int
	// hashes to choose between: the server with the fewest connections wins,
	// the first of those that are equal. 1, 2 or 4.
	hashes int
	// fresh: a tag is replaced by the newest configuration's once that leads to
	// the same server. Packets flow all the time, so that none has to be tried
	// twice.
	fresh bool
	// kind of hash; empty: modulo.
	kind   chash.Kind
	placer placers

	version int
	last    []config // by version modulo configurations
	conns   []int32  // by server
	lastIn  []int    // by server: the last version in which it worked

	TagCounts
}

// TagCounts is what a scheme of tags saw of live connections at changes.
type TagCounts struct {
	// Named: the configuration under which the tag was given is remembered.
	// Lost of them led elsewhere.
	Named, Lost int64
	// Gone connections broke, Present of them though their server worked in a
	// configuration that is remembered. All of a run are counted, not only whole
	// lives (Run.From).
	Gone, Present int64
	// Drained connections' server worked in no configuration that is
	// remembered; Kept of them did not break.
	Drained, Kept int64
}

// config is a configuration of working servers.
type config interface{ server(hash uint64) uint16 }

type moduloConfig []uint16

func (m moduloConfig) server(hash uint64) uint16 { return m[uint32(hash>>32)%uint32(len(m))] }

type placedConfig struct{ placer }

func (p placedConfig) server(hash uint64) uint16 {
	slot, _, _ := p.Place(hash)
	return uint16(slot)
}

func newTags(s Setup, configurations, hashes int, kind chash.Kind, fresh bool) *tags {
	return &tags{
		setup: s, configurations: configurations, hashes: hashes, fresh: fresh, kind: kind, placer: placers{setup: s, kind: kind},
		last: make([]config, configurations), conns: make([]int32, s.Working+s.Standby), lastIn: make([]int, s.Working+s.Standby),
	}
}

func (t *tags) Update(p *Pool, _ sim.Time) error {
	t.version = p.Version
	var c config = moduloConfig(p.Working)
	if t.kind != "" {
		if err := t.placer.update(p); err != nil {
			return err
		}
		c = placedConfig{t.placer.Newest()}
	}
	t.last[p.Version%t.configurations] = c
	for n, s := range p.State {
		switch {
		case s == Working:
			t.lastIn[n] = p.Version
		case p.Version == 0:
			t.lastIn[n] = -t.configurations
		}
	}
	return nil
}

// Forget: what is remembered is in last.
func (t *tags) Forget(oldest int) {
	if t.kind != "" {
		t.placer.Forget(oldest)
	}
}

// nth is the n-th hash of a connection, the first from its key itself.
func nth(key uint64, n uint32) uint64 {
	if n == 0 {
		return key
	}
	return sim.SplitMix(key + uint64(n)*0x9e3779b97f4a7c15)
}

// A Note is the cookie below, index of the hash and tag, and above it the
// version that the tag was given for: that does not travel, it is there to be
// counted by.
const (
	indexBits  = 2
	cookieBits = 8 + indexBits
)

// MaxConfigurations is how many configurations a scheme of tags can remember.
const MaxConfigurations = 1 << (cookieBits - indexBits)

func (t *tags) note(version int, index uint32) uint32 {
	return uint32(version)<<cookieBits | uint32(version%t.configurations)<<indexBits | index
}

func (t *tags) Open(c *Conns) {
	newest := t.last[t.version%t.configurations]
	for i, key := range c.Key {
		best, index := newest.server(key), uint32(0)
		for n := uint32(1); n < uint32(t.hashes); n++ {
			if s := newest.server(nth(key, n)); t.conns[s] < t.conns[best] {
				best, index = s, n
			}
		}
		t.conns[best]++
		c.First[i], c.Note[i] = best, t.note(t.version, index)
	}
}

// Serve reads the cookie and, in a fresh scheme, writes a fresher one.
func (t *tags) Serve(c *Conns) {
	newest := t.last[t.version%t.configurations]
	for i, key := range c.Key {
		if c.First[i] == Broken {
			continue
		}
		index := c.Note[i] & (1<<indexBits - 1)
		hash := nth(key, index)
		at := t.last[int(c.Note[i]>>indexBits)%t.configurations].server(hash)
		c.At[i] = at
		t.count(c.First[i], at, t.age(c.Note[i]))
		if at != c.First[i] {
			t.conns[c.First[i]]--
		} else if t.fresh && newest.server(hash) == at {
			c.Note[i] = t.note(t.version, index)
		}
	}
}

// age is for how many versions a note's tag has been there. Notes have the
// lowest bits of versions.
func (t *tags) age(note uint32) int {
	return int((uint32(t.version)<<cookieBits - note>>cookieBits<<cookieBits) >> cookieBits)
}

// count notes what became of a connection whose tag is of an age.
func (t *tags) count(first, at uint16, age int) {
	if at != first {
		t.Gone++
	}
	if age < t.configurations {
		t.Named++
		if at != first {
			t.Lost++
		}
	}
	if t.version-t.lastIn[first] >= t.configurations {
		t.Drained++
		if at == first {
			t.Kept++
		}
	} else if at != first {
		t.Present++
	}
}

func (t *tags) Close(c *Conns) {
	for _, s := range c.First {
		if s != Broken {
			t.conns[s]--
		}
	}
}
