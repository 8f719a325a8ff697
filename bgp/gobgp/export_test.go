package gobgp

import (
	"context"
	"time"

	"github.com/osrg/gobgp/v4/api"
)

// Reset orders the end of all sessions, as BFD does, once there are their neighbours.
func (s *Speaker) Reset() (err error) {
	for _, n := range s.options.Neighbours {
		r := &api.ResetPeerRequest{Address: n.Address.String(), Communication: "BFD is down"}
		for range 1000 {
			if err = s.server.ResetPeer(context.Background(), r); err == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return err
}
