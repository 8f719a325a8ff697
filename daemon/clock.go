package daemon

import (
	"context"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// clockAnswerTime bounds how long a starting daemon waits for its peers' time.
const clockAnswerTime = time.Second

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
	clockWall   clockSource = "wall"   // nobody answered
)

// peerOffsets asks every peer for the shared time and returns what each
// answer differs from this machine's monotonic clock, corrected by half the
// way's time. Peers that do not answer in time are left out.
func peerOffsets(ctx context.Context, peers []*peer) map[string]uint32 {
	ctx, cancel := context.WithTimeout(ctx, clockAnswerTime)
	defer cancel()
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		offsets = map[string]uint32{}
	)
	for _, p := range peers {
		wg.Go(func() {
			sent := time.Now()
			resp, err := p.client.GetTime(ctx, connect.NewRequest(&fairleadv1.GetTimeRequest{}))
			if err != nil {
				return
			}
			offset := resp.Msg.SharedMs + uint32(time.Since(sent).Milliseconds()/2) - monotonicMS()
			mu.Lock()
			offsets[p.name] = offset
			mu.Unlock()
		})
	}
	wg.Wait()
	return offsets
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
	return base + uint32(distances[(len(distances)-1)/2]), true
}

// chooseClock decides the shared clock of a daemon that has none pinned:
// what to add to CLOCK_MONOTONIC ms, and where that came from.
func chooseClock(ctx context.Context, peers []*peer) (base uint32, source clockSource) {
	if m, ok := medianOffset(peerOffsets(ctx, peers)); ok {
		return m, clockPeers
	}
	return wallMS() - monotonicMS(), clockWall
}
