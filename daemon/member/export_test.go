package member

// For tests of whole deployments.
var (
	PeerInterval = &peerInterval
	MakeForce    = makeForce
	ForceText    = forceText
	Never        = never
)

// InFlight is inFlight.
const InFlight = inFlight
