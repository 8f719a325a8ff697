package member

import "time"

// For tests of whole deployments.
var (
	MakeForce = makeForce
	ForceText = forceText
	Never     = never
)

// InFlight is inFlight.
const InFlight = inFlight

func init() { peerInterval = 200 * time.Millisecond }
