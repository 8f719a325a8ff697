// Package probe sends small packets along every path between hosts of a
// fabric, steered by the fabric's selector, and says which paths lose packets,
// are slow or are not the ones chosen, and which links explain it (CFLB,
// section 5: paths that can be monitored).
//
// Each path has a flow of its own: UDP to the answerer of the other host
// (answer.go), with a source port (IPv6: flow label) that makes the routers
// take just this path. The answer comes back over the same links.
//
//	prober.go   a probe a path every interval; each is judged when Timeout is over
//	lane.go     one path's flow and socket
//	take.go     answers, and what routers say of probes
//	judge.go    good, lost, slow: three bad probes in a row, twenty good ones
//	walk.go     probes that end at each router on the way: is it the one chosen?
//	train.go    probes side by side: how fast the path is
//	tail.go     trains that end at each router: which link is slow
//	blame.go    the smallest set of links that explains the bad paths
//	report.go   what is known now: paths, and links that are to blame
//	socket.go   what sends and receives; control.go: TTLs and ICMP errors of packets
//	message.go  what probes and answers carry
//	answer.go   the other end
//	learn.go    the fabric, learned by traceroute with selectors
package probe

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/topology"
)

// DefaultPort is the UDP port of answerers.
const DefaultPort = 6081

// Defaults of Config.
const (
	DefaultInterval = 100 * time.Millisecond
	DefaultTimeout  = 300 * time.Millisecond
)

// Config says what is probed from one host.
type Config struct {
	Fabric *topology.Fabric
	// From is this host's name in the fabric. Source is the address that probes
	// come from, one of its own; invalid: one that fits the path.
	From   string
	Source netip.Addr
	// IPv6 probes over IPv6 where addresses are left open.
	IPv6 bool
	// Targets are whom to probe, each over the paths given.
	Targets []Target
	// Port is the answerers' UDP port; 0: DefaultPort.
	Port uint16
	// Interval between two probes of a path, 10 ms or more; 0: DefaultInterval.
	Interval time.Duration
	// Timeout is when a probe without an answer is lost, and when each is
	// judged; 0: DefaultTimeout.
	Timeout time.Duration
	// Walk is how often it is checked that the routers on a path are those that
	// were chosen; 0: never. Routers answer about one packet a second (Linux:
	// net.ipv4.icmp_ratelimit).
	Walk time.Duration
	// Relative judges paths by each other alone: a round in which no path to a
	// target has an answer judges none of them, as the host or its answerer is
	// gone, and verdicts stay (see State.Silent). Nor is a path judged by a probe
	// that the host itself says to have had, with nobody to answer it.
	Relative bool
	// Log; nil: slog.Default().
	Log *slog.Logger
}

// Target is a host and the paths to it.
type Target struct {
	Host    string     // its name in the fabric
	Address netip.Addr // of its own, of Source's family; invalid: one that fits the path
	Paths   []paths.Path
}

// Verdict is what is known of a path.
type Verdict string

// The verdicts. Only Good paths should be used.
const (
	Unknown Verdict = "unknown" // not yet probed long enough
	Good    Verdict = "good"
	Lost    Verdict = "lost"   // three probes in a row had no answer
	Slow    Verdict = "slow"   // three in a row took three times the best path's, and 2 ms more
	Astray  Verdict = "astray" // answered, but over other routers than the chosen ones
)

// State is one path of a target, as it is now.
type State struct {
	Target  int // index into Config.Targets
	Path    int // index into the target's Paths
	Verdict Verdict
	// Since is when the verdict last changed.
	Since time.Time
	// Reason says in words why the verdict is not Good.
	Reason string
	// Sent and Answered probes that are judged, since the start.
	Sent, Answered uint64
	// RTT of answered probes, without the time that the answerer took: the
	// least, the mean and the last; 0 where nothing was answered.
	RTTMin, RTTMean, RTTLast time.Duration
	// Flow takes the path, in packets that begin with TTL.
	Flow pathsel.Flow
	TTL  uint8
	// Rates that trains found (Measure); 0: not measured.
	Rates Rates
	// Altered says what is rewritten on the way (NAT, TTL, label), "" if
	// nothing.
	Altered string
	// Silent says why no path to the target has had an answer in three rounds
	// or more, "" if one had or this path is not probed.
	Silent string
}
