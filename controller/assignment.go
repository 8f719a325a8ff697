// Package controller turns desired state (config.Config) into what balancers
// and agents must share: one versioned assignment of slots, states, keys and
// epochs. Everything here is a pure function; nothing touches the network.
package controller

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/vip"
)

// Assignment is what all daemons share. A change makes a series of
// assignments whose neighbours can be mixed among daemons without breaking a
// connection: the next is handed out only after every daemon has the one
// before. Its JSON form is what daemons keep on disk and what the API carries.
type Assignment struct {
	Version uint64 `json:"version"`
	// Keys are the epochs that decode: one or two, the older first, with
	// epochs that differ by one.
	Keys []Key `json:"keys"`
	// StampEpoch is the epoch under which hosts stamp new connections. It
	// follows the newest key one version after that key was handed out.
	StampEpoch uint32 `json:"stamp_epoch"`
	// HashKey keys all hashing that is not a cookie. It never changes.
	HashKey hash.Key `json:"hash_key"`
	VIPs    []VIP    `json:"vips"`
	// NextVIPID is the ID that the next new VIP gets. IDs go round, so that
	// one is not reused while a daemon may hold the VIP that had it before.
	NextVIPID uint32 `json:"next_vip_id"`
	// Sources are the prefixes that servers take tunnels from, ascending, each
	// address family's all of them: the balancers' and the file's own. Of a
	// family that is not there they take them from anybody, but for scheme
	// beamer; servers of its VIPs also take them from each other.
	Sources []netip.Prefix `json:"sources,omitempty"`
}

// Key is the secret of one epoch (16 bytes or more).
type Key struct {
	Epoch  uint32 `json:"epoch"`
	Secret []byte `json:"secret"`
}

// VIP is a VIP with everything that balancers and agents must agree on: its
// settings, and what the controller made of them.
type VIP struct {
	// ID is 1 or more, stable for the VIP's life and not reused while a
	// daemon may hold the one before.
	ID uint32 `json:"id"`
	vip.Settings
	// HashRows is how many rows its table has, fixed when the VIP is made,
	// since another number moves every connection. 0: hash anchor, which has
	// no rows, or an assignment made before they stood here (tables:
	// hashRows).
	HashRows int `json:"hash_rows,omitempty"`
	// HorizonSteps is since when numbers are in the horizon (anchor; else
	// empty), Top and Since ascending; the last one's Top is HorizonTop.
	HorizonSteps []HorizonStep `json:"horizon_steps,omitempty"`
	// Buckets is the bucket table (schemes beamer and faild; else nil). Its
	// length is fixed when the VIP is made. Every number in it is a slot's.
	Buckets *buckets.Table `json:"buckets,omitempty"`
	// TierTwo are the balancers of tier two by the numbers that cookies name (Tiers),
	// as Slots; nil: there is one tier.
	TierTwo []Slot `json:"tier_two,omitempty"`
	// Migration is how v comes to be found otherwise than it was; nil: it does not.
	Migration *Migration `json:"migration,omitempty"`
	// Slots in ascending number; numbers may have gaps.
	Slots []Slot `json:"slots"`
}

// encoded is VIP with its fields in the order in which an assignment is encoded:
// digests are over it, and daemons of builds before compare them.
var encoded = func() reflect.Type {
	var fields []reflect.StructField
	for _, name := range []string{"ID", "Name", "Address", "Port", "Protocol", "Scheme", "Policy", "Affinity", "Forwarding", "Steer",
		"CookieBits", "SeatBits", "Tiers", "Rates", "Carrier", "Handshake", "Fragments", "ICMPEcho", "MSSClamp", "Health", "Hash", "HashRows", "Capacity", "Horizon", "HorizonSteps",
		"WarmUp", "Share", "Buckets", "ChainTime", "MPTCP", "Announce", "Communities", "MED", "TierTwo", "Migration", "Slots"} {
		f, _ := reflect.TypeFor[VIP]().FieldByName(name)
		fields = append(fields, reflect.StructField{Name: f.Name, Type: f.Type, Tag: f.Tag})
	}
	return reflect.StructOf(fields)
}()

// MarshalJSON: see encoded.
func (v VIP) MarshalJSON() ([]byte, error) {
	from, to := reflect.ValueOf(v), reflect.New(encoded).Elem()
	for i := range encoded.NumField() {
		to.Field(i).Set(from.FieldByName(encoded.Field(i).Name))
	}
	return json.Marshal(to.Interface())
}

// HorizonStep: all numbers below Top are in the horizon, or in use, since
// Since (zero: since the VIP was made).
type HorizonStep struct {
	Top   uint16    `json:"top"`
	Since time.Time `json:"since,omitzero"`
}

// State is where a server is in its life within one VIP.
//
//	joining ──all daemons know it──▶ active ⇄ draining ──remove──▶ resting ──rest over──▶ (free)
//	standby ──undrain──▶ active    draining ──its connections over──▶ standby
//
// Every state but "free" forwards packets of connections that name the slot;
// only active takes new ones.
type State string

const (
	Joining State = "joining"
	// Standby: in the horizon until it is made active. It never worked, or
	// its connections are over, so it is removed without a drain.
	Standby  State = "standby"
	Active   State = "active"
	Draining State = "draining"
	// Resting: removed; the number is not reused, and packets that name it
	// still go to the old server, until RestUntil.
	Resting State = "resting"
)

// Slot is a server's number within one VIP.
type Slot struct {
	Number  uint16     `json:"number"`
	Server  string     `json:"server"`
	Address netip.Addr `json:"address"`
	Weight  int        `json:"weight"`
	State   State      `json:"state"`
	// Version is the assignment that the slot came with; 0: the first, or one
	// made before this stood here. A daemon that has a version before this
	// one does not know it.
	Version uint64 `json:"version,omitempty"`
	// API is where the server's agent answers, "none" if there is no agent.
	// It stands here so that the agent of a server that left the file can
	// still be asked for its live connections and be given new keys.
	API string `json:"api"`
	// RestUntil is set in state resting: the removal plus the idle limit of
	// the VIP's cookies, or of the flow table, and a minute for the handing
	// over. A standby that has worked has it, too: until then its number
	// rests if it is removed.
	RestUntil time.Time `json:"rest_until,omitzero"`
	// Since is when the slot entered the pool or the horizon, zero if it was
	// there when the VIP was made. Until Since + WarmUp there may be
	// connections from before that must be held where they are.
	Since time.Time `json:"since,omitzero"`
	// OldWeight is the weight under which connections older than the last
	// changes of Weight were placed, WeightSince when the last of these
	// changes was; they count until WeightSince + WarmUp. 0 and zero: none.
	OldWeight   int       `json:"old_weight,omitempty"`
	WeightSince time.Time `json:"weight_since,omitzero"`
	// DrainSince is when a draining or resting slot got its last new
	// connection; zero if it never had any.
	DrainSince time.Time `json:"drain_since,omitzero"`
}

// Warming: there may be connections from before s came, which must be held
// where they were. They end at WarmUntil, zero if there were none.
func (v *VIP) Warming(s *Slot, now time.Time) bool { return now.Before(v.WarmUntil(s)) }

// WarmUntil: see Warming.
func (v *VIP) WarmUntil(s *Slot) time.Time {
	if s.Since.IsZero() {
		return time.Time{}
	}
	return s.Since.Add(v.WarmUp)
}

// HeldWeight is the weight under which connections that s held at now were
// placed, and until when it differs from Weight (zero: it does not).
func (v *VIP) HeldWeight(s *Slot, now time.Time) (weight int, until time.Time) {
	if until = s.WeightSince.Add(v.WarmUp); s.OldWeight > 0 && now.Before(until) {
		return s.OldWeight, until
	}
	return s.Weight, time.Time{}
}
