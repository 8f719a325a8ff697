package gobgp

import (
	"context"
	"strings"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// GoBGP ends a session when BFD says so, also where there is none: then the order waits,
// and ends the next one as soon as it stands. The router's BFD goes with that session, ours
// runs out, and orders the end of the one after that: so it goes on for ever. A neighbour
// whose session ends like this is taken out and put in again, which forgets the order.

// staleWithin is how old a session can be that a waiting order ends.
const staleWithin = 100 * time.Millisecond

// stale: why a session of a neighbour with BFD ended, so long after it began, is such an
// order.
func stale(why string, after time.Duration) bool {
	return after < staleWithin && strings.Contains(why, "notification sent") && strings.Contains(why, "administrative reset")
}

// renew takes a neighbour out and puts it in again.
func (s *Speaker) renew(n Neighbour) {
	ctx := context.Background()
	err := s.server.DeletePeer(ctx, &api.DeletePeerRequest{Address: n.Address.String()})
	if err == nil {
		err = s.server.AddPeer(ctx, &api.AddPeerRequest{Peer: s.peer(n)})
	}
	if err != nil {
		s.options.Log.Error("a BGP neighbour whose sessions end at once could not be begun anew", "neighbour", n.Address.String(), "error", err)
	}
}
