// Package vip is the choices of a VIP as types: its scheme (how a packet that
// is not the first finds its server), policy (how the first one's server is
// chosen), carrier (where a cookie travels) and forwarding (how the packet gets
// to the server). What one can do, needs and goes together with is said by its
// row in a table here, and nowhere else: other rooms ask the row, and compare no
// names (TestNobodyCompares). Pure: it imports leaves alone.
package vip

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/scheme/seats"
	"github.com/fairlead/fairlead/wire"
)

// MaxNexthops is how many members the kernel takes in one group: the length of
// the attribute that lists them, 8 octets each behind a header of 4, has 16
// bits.
const MaxNexthops = (1<<16 - 1 - 4) / 8

// Scheme is how a packet that is not a connection's first finds its server.
type Scheme string

const (
	Cheetah         Scheme = "cheetah"
	CheetahStateful Scheme = "cheetah-stateful"
	JET             Scheme = "jet"
	FullCT          Scheme = "full-ct"
	Stateless       Scheme = "stateless"
	Beamer          Scheme = "beamer"
	Faild           Scheme = "faild"
)

// Finds is what a connection is found by. Where a packet has no cookie, scheme
// cheetah finds it by the hash.
type Finds int

const (
	ByHash Finds = iota
	ByCookie
	ByBuckets
)

// Tracks is which connections flow tables remember, of those without a cookie.
type Tracks int

const (
	None Tracks = iota
	// Foreseen: those that a change which may come would move.
	Foreseen
	All
)

// SchemeRow is a scheme's row.
type SchemeRow struct {
	Name Scheme
	// Number is fl_scheme's.
	Number uint8
	Finds  Finds
	Tracks Tracks
	// Carriers are where its cookie may travel.
	Carriers []Carrier
	// Seats is the default width of the seat in its cookies, by which a balancer
	// finds what it knows of a connection; 0: they have none.
	Seats int
	// Tiers: its cookies may name a balancer of a second tier beside what they name else.
	Tiers bool
	// Policies that go with it, where packets have no cookie ByTheHash alone.
	// The first is the default.
	Policies []Policy
	// Offloads: agents may answer SYNs, since the cookie depends on nothing but the
	// connection and the slot.
	Offloads bool
	// Switched: a switch forwards, no balancer. It makes no tunnels, routes
	// addresses, hashes ports, and has one group of servers for all its VIPs.
	Switched bool
	// Hops: the balancers' packets name the servers to ask next, so servers must
	// know where tunnels come from, and pass packets on from their own address.
	// Joins of Multipath TCP find the first subflow's server.
	Hops bool
	// Slots is how many servers there can be, where no cookie names them.
	Slots int
	// Buckets is the default number, and MaxBuckets the highest (ByBuckets).
	Buckets, MaxBuckets int
	// WhyHash is why only policy hash goes with it.
	WhyHash string
	// Unused is why it has no use for what is about tracking.
	Unused string
}

// schemes in the order in which people are told of them; the first is the
// default.
var schemes = []SchemeRow{
	{Name: Cheetah, Tiers: true, Number: 1, Finds: ByCookie, Tracks: Foreseen, Carriers: []Carrier{TCPTimestamp},
		Policies: []Policy{RR, WRR, P2C, LeastConn, ByTheHash}, Offloads: true, Slots: chash.MaxSlots},
	{Name: CheetahStateful, Tiers: true, Number: 6, Finds: ByCookie, Tracks: Foreseen, Carriers: []Carrier{TCPTimestamp}, Seats: 8,
		Policies: []Policy{RR, WRR, P2C, LeastConn, ByTheHash}, Slots: chash.MaxSlots},
	{Name: JET, Number: 2, Finds: ByHash, Tracks: Foreseen, Policies: hashAlone, Slots: chash.MaxSlots,
		WhyHash: "scheme jet finds what it did not remember by its hash alone"},
	{Name: FullCT, Number: 3, Finds: ByHash, Tracks: All, Policies: hashAlone, Slots: chash.MaxSlots,
		WhyHash: "scheme full-ct finds what it did not remember by its hash alone",
		Unused:  "scheme full-ct tracks every connection, whatever is to come"},
	{Name: Stateless, Number: 0, Finds: ByHash, Tracks: None, Policies: hashAlone, Slots: chash.MaxSlots,
		WhyHash: "scheme stateless remembers nothing, so only hash finds the same server again",
		Unused:  "scheme stateless tracks no connection"},
	// A bucket names its servers in 16 bits, two values of which stand for
	// nobody and for a bucket that has moved.
	{Name: Beamer, Number: 4, Finds: ByBuckets, Policies: hashAlone, Hops: true,
		Slots: 1<<16 - 2, Buckets: 4096, MaxBuckets: buckets.Max,
		WhyHash: "scheme beamer goes by its buckets, which a hash finds"},
	// iproute2 can still list a group of 256 nexthops. A MAC address has 10 bits
	// for each of four servers.
	{Name: Faild, Number: 5, Finds: ByBuckets, Policies: hashAlone, Switched: true,
		Slots: wire.FaildMaxSlot + 1, Buckets: 256, MaxBuckets: MaxNexthops,
		WhyHash: "scheme faild goes by its buckets, which a hash finds"},
}

var hashAlone = []Policy{ByTheHash}

// DefaultScheme is that of a VIP whose entry names none.
var DefaultScheme = schemes[0].Name

// Schemes are all schemes' rows.
func Schemes() []SchemeRow { return schemes }

// schemeThat names the schemes whose rows are so, for remedies.
func schemeThat(is func(*SchemeRow) bool) string {
	var names []string
	for i := range schemes {
		if is(&schemes[i]) {
			names = append(names, string(schemes[i].Name))
		}
	}
	return strings.Join(names, " or ")
}

// Row is s's row, a zero one if there is no such scheme.
func (s Scheme) Row() SchemeRow { return find(schemes, func(r *SchemeRow) bool { return r.Name == s }) }

// SchemeOf is the row of fl_scheme's number, a zero one if nobody has it.
func SchemeOf(number uint8) SchemeRow {
	return find(schemes, func(r *SchemeRow) bool { return r.Number == number })
}

// Chains: packets may be passed on from server to server, by bucket tables.
func (r SchemeRow) Chains() bool { return r.Finds == ByBuckets }

// Forgets: it goes by the hash and remembers no connection.
func (r SchemeRow) Forgets() bool { return r.Finds == ByHash && r.Tracks == None }

// Foresees: what the horizon would move is tracked.
func (r SchemeRow) Foresees() bool { return r.Tracks == Foreseen }

// Carrier is where a cookie of the scheme travels over the protocol unless the VIP
// says another place, "" if there is none.
func (r SchemeRow) Carrier(protocol string) Carrier {
	for _, c := range r.Carriers {
		if slices.Contains(c.Row().Protocols, protocol) {
			return c
		}
	}
	return ""
}

// Policies that go with the scheme over the protocol, the default first.
func (s Scheme) Policies(protocol string) []Policy {
	r := s.Row()
	if r.Name == "" || len(r.Carriers) > 0 && r.Carrier(protocol) == "" {
		return hashAlone
	}
	return r.Policies
}

// Bounds of chain_time. The default is as long as a client may go on sending to
// a server that has answered nothing (Beamer, "daisy chaining").
const (
	DefaultChainTime = 4 * time.Minute
	MinChainTime     = time.Second
	MaxChainTime     = 24 * time.Hour
)

// Multipath TCP's joins come to ports from FirstJoinPort up, which stand for
// servers, one each.
const (
	FirstJoinPort = bpf.JoinPort
	joinSlots     = 1 << 15
)

// Carrier is where a cookie travels.
type Carrier string

// TCPTimestamp is the upper bits of the TCP timestamp.
const TCPTimestamp Carrier = "tcp-timestamp"

// CarrierRow is a carrier's row.
type CarrierRow struct {
	Name Carrier
	// Number is fl_carrier's.
	Number uint8
	// Protocols in whose packets there is room.
	Protocols []string
	// Bits bound the cookie's width, and DefaultBits is where nobody says.
	MinBits, MaxBits, DefaultBits int
	// Slots is how many servers so many bits name.
	Slots func(bits int) int
	// Idle is how long a connection may be silent and keep its cookie.
	Idle func(bits int) time.Duration
}

var carriers = []CarrierRow{
	{TCPTimestamp, 0, []string{TCP}, cheetah.MinBits, cheetah.MaxBits, 12,
		func(bits int) int { return cheetah.Layout{Bits: bits}.Slots() },
		func(bits int) time.Duration { return cheetah.Layout{Bits: bits}.IdleLimit() }},
}

// holds: a cookie may be so wide.
func (r *CarrierRow) holds(bits int) bool {
	return r.Name != "" && bits >= r.MinBits && bits <= r.MaxBits
}

// Bounds of seat_bits: a seat's entry has room for the slots of the cookies that have
// one.
const (
	MinSeatBits = seats.MinBits
	MaxSeatBits = seats.MaxBits
)

// Carriers are all carriers' rows.
func Carriers() []CarrierRow { return carriers }

// CarrierOf is the row of fl_carrier's number, a zero one if nobody has it.
func CarrierOf(number uint8) CarrierRow {
	return find(carriers, func(r *CarrierRow) bool { return r.Number == number })
}

// Row is c's row, a zero one if there is no such carrier.
func (c Carrier) Row() CarrierRow {
	return find(carriers, func(r *CarrierRow) bool { return r.Name == c })
}

func find[R any](rows []R, is func(*R) bool) (none R) {
	for i := range rows {
		if is(&rows[i]) {
			return rows[i]
		}
	}
	return none
}
