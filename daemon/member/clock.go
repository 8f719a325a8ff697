package member

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

const (
	// clockAnswerTime bounds how long a peer is waited for, and
	// clockStartTime how long peers that are starting are.
	clockAnswerTime = time.Second
	clockStartTime  = 5 * time.Second
)

// monotonicMS is CLOCK_MONOTONIC in milliseconds, modulo 2^32.
func monotonicMS() uint32 {
	var ts unix.Timespec
	// CLOCK_MONOTONIC exists on every Linux: the call cannot fail.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint32(ts.Sec*1000 + ts.Nsec/1e6)
}

// wallMS is CLOCK_REALTIME in milliseconds, modulo 2^32.
func wallMS() uint32 { return uint32(time.Now().UnixMilli()) }

// clockSource is where a daemon's shared clock came from.
type clockSource string

const (
	clockPinned clockSource = "pinned" // fixed earlier in this boot
	clockPeers  clockSource = "peers"  // median of the peers' answers
	clockStore  clockSource = "store"  // nobody answered: by this machine's wall clock, as far ahead of it as the store says
	clockWall   clockSource = "wall"   // nobody answered, and the store has none
)

// sharedClock is a daemon's clock once it is fixed: shared ms =
// CLOCK_MONOTONIC ms + base.
type sharedClock struct {
	base   uint32
	source clockSource
}

func (c *sharedClock) now() uint32 { return monotonicMS() + c.base }

// clockOf is the clock of a base.
func clockOf(base uint32) func() uint32 { return (&sharedClock{base: base}).now }

const (
	// goodRoundTrip makes a sample good enough at once; the error is at most
	// half of it.
	goodRoundTrip = 5 * time.Millisecond
	// worstRoundTrip is the longest of a sample that is used at all: an error
	// of half of it leaves half of what cookies allow.
	worstRoundTrip = 500 * time.Millisecond
	samples        = 4
)

// errSlow: a peer answers, too slowly to tell its time.
var errSlow = fmt.Errorf("answers take longer than %v", worstRoundTrip)

// sampleClock asks a peer for the shared time, a few times if the answers are
// slow, and returns what the best one differs from this machine's monotonic
// clock. What else the last answer said is there unless the peer did not answer.
func sampleClock(ctx context.Context, p *Peer) (offset uint32, said *fairleadv1.GetTimeResponse, err error) {
	best := worstRoundTrip
	err = errSlow
	for range samples {
		sent := time.Now()
		resp, asked := p.Client.GetTime(ctx, connect.NewRequest(&fairleadv1.GetTimeRequest{}))
		if asked != nil {
			return 0, nil, asked
		}
		said = resp.Msg
		if trip := time.Since(sent); trip < best {
			best, err = trip, nil
			offset = resp.Msg.SharedMs + uint32(trip.Milliseconds()/2) - monotonicMS()
		}
		if best <= goodRoundTrip {
			break
		}
	}
	return offset, said, err
}

// Why a daemon's GetTime has no answer yet, by the code of the error:
// unavailable, it may find a pinned clock yet; failed precondition, it has
// none and asks its peers.
const (
	codeOpening = connect.CodeUnavailable
	codeAsking  = connect.CodeFailedPrecondition
)

// peerOffsets asks every peer once. wait says that a peer is about to know the
// time and has to be waited for; of two that both ask, the one whose name
// comes first does not wait for the other.
func peerOffsets(ctx context.Context, me string, peers []*Peer) (offsets map[string]uint32, wait bool) {
	ctx, cancel := context.WithTimeout(ctx, clockAnswerTime)
	defer cancel()
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	offsets = map[string]uint32{}
	for _, p := range peers {
		wg.Go(func() {
			offset, _, err := sampleClock(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				offsets[p.Name] = offset
			case !connect.IsWireError(err): // not the daemon's own words
			case connect.CodeOf(err) == codeOpening, connect.CodeOf(err) == codeAsking && p.Name < me:
				wait = true
			}
		})
	}
	wg.Wait()
	return offsets, wait
}

// medianOffset is the middle of offsets on the circle of 2^32: they are
// compared by their distance to one of them. ok is false without any.
func medianOffset(offsets map[string]uint32) (median uint32, ok bool) {
	if len(offsets) == 0 {
		return 0, false
	}
	var base uint32
	var distances []int32
	for _, o := range offsets {
		if len(distances) == 0 {
			base = o
		}
		distances = append(distances, int32(o-base))
	}
	slices.Sort(distances)
	n := len(distances)
	// Of an even number the mean of the middle two: always the lower one would
	// let the deployment's clock creep with every machine that joins.
	low, high := int64(distances[(n-1)/2]), int64(distances[n/2])
	return base + uint32((low+high)/2), true
}

// chooseClock decides the shared clock of a daemon that has none pinned:
// the median of the peers', waiting a little for those that are starting too,
// else the wall clock.
func chooseClock(ctx context.Context, me string, peers []*Peer) sharedClock {
	for deadline := time.Now().Add(clockStartTime); ; {
		offsets, wait := peerOffsets(ctx, me, peers)
		if m, ok := medianOffset(offsets); ok {
			return sharedClock{m, clockPeers}
		}
		if !wait || ctx.Err() != nil || time.Now().After(deadline) {
			return sharedClock{wallMS() - monotonicMS(), clockWall}
		}
		time.Sleep(20 * time.Millisecond)
	}
}
