package controller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/vip"
)

// ErrConflict: the assignment in force is not the one that the caller saw.
var ErrConflict = errors.New("the assignment changed meanwhile; run it again")

// ErrInForce: the assignment is in force for packets, but something that
// follows it failed (what it replaces is not cleared away). It must not be
// taken back; putting it in force again finishes the rest.
var ErrInForce = errors.New("in force, but not finished")

// Encode is the assignment as JSON: indented, ending in a newline, the same
// bytes for the same assignment. It holds keys.
//
// They are the same in every later build, too: what an older one encoded, decoded
// and encoded by this one, is what it was. Daemons take digests of what they encode
// themselves, and hold these against PIN_DIR/force, of the build before, and
// against peers', of other builds. If they differed, a daemon that is upgraded
// would set its assignment aside as damaged, not start where no peer answers, and
// not be ready where most have the other digest. So a new field is omitempty or
// omitzero and not set in older assignments, and no field changes its name, its
// place or its form (TestEncodingStays).
func (a *Assignment) Encode() []byte {
	b, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		panic(err) // no field can fail
	}
	return append(b, '\n')
}

// Decode reads what Encode wrote and validates it.
func Decode(data []byte) (*Assignment, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	a := &Assignment{}
	if err := d.Decode(a); err != nil {
		return nil, fmt.Errorf("assignment: %w", err)
	}
	if d.More() {
		return nil, errors.New("assignment: more than one JSON object")
	}
	return a, a.Validate()
}

// Large says that a VIP has a table of more than 65,536 buckets: what Encode gives takes
// longer to make and to write than packets should wait for.
func (a *Assignment) Large() bool {
	return slices.ContainsFunc(a.VIPs, func(v VIP) bool { return v.Bucketed() && v.Buckets.Len() > manyBuckets })
}

// Clone is a deep copy.
func (a *Assignment) Clone() *Assignment {
	b := *a
	b.Keys = slices.Clone(a.Keys)
	for i := range b.Keys {
		b.Keys[i].Secret = slices.Clone(b.Keys[i].Secret)
	}
	b.VIPs = slices.Clone(a.VIPs)
	for i := range b.VIPs {
		b.VIPs[i] = b.VIPs[i].clone()
	}
	return &b
}

func (v *VIP) clone() VIP {
	w := *v
	w.Slots = slices.Clone(v.Slots)
	w.HorizonSteps = slices.Clone(v.HorizonSteps)
	w.TierTwo = slices.Clone(v.TierTwo)
	if v.Rates != nil {
		w.Rates = v.Rates.Clone()
	}
	if v.Tiers != nil {
		w.Tiers = new(*v.Tiers)
	}
	if v.Health != nil {
		w.Health = new(*v.Health)
	}
	if v.Migration != nil {
		w.Migration = new(*v.Migration)
	}
	return w
}

// VIP is the VIP called name.
func (a *Assignment) VIP(name string) (*VIP, bool) {
	for i := range a.VIPs {
		if a.VIPs[i].Name == name {
			return &a.VIPs[i], true
		}
	}
	return nil, false
}

// ByID is the VIP with this ID, nil: there is none.
func (a *Assignment) ByID(id uint32) *VIP {
	if v := a.byID(id); v.ID == id {
		return v
	}
	return nil
}

func (a *Assignment) byIdentity(id identity) *VIP {
	for i := range a.VIPs {
		if a.VIPs[i].identity() == id {
			return &a.VIPs[i]
		}
	}
	return nil
}

func (a *Assignment) newest() Key { return a.Keys[len(a.Keys)-1] }

// Slot is slot number, if the VIP has it.
func (v *VIP) Slot(number uint16) (*Slot, bool) {
	i, ok := slices.BinarySearchFunc(v.Slots, number, func(s Slot, n uint16) int { return int(s.Number) - int(n) })
	if !ok {
		return nil, false
	}
	return &v.Slots[i], true
}

// slotLimit is how many slots v can number.
func (v *VIP) slotLimit() int {
	if v.Capacity > 0 {
		return min(v.Capacity, v.MaxNumbers())
	}
	return v.MaxNumbers()
}

// Validate says what a daemon could not carry out. Assignments made here are
// always valid; those from a disk or a network need not be.
func (a *Assignment) Validate() error {
	if a.Version == 0 || a.Version > maxVersion {
		return fmt.Errorf("assignment: version %d: must be 1 to %d", a.Version, uint64(maxVersion))
	}
	if a.NextVIPID > MaxVIPID {
		return fmt.Errorf("assignment %d: next_vip_id %d: must be at most %d", a.Version, a.NextVIPID, MaxVIPID)
	}
	if n := len(a.Keys); n < 1 || n > 2 {
		return fmt.Errorf("assignment %d: %d keys, must be 1 or 2", a.Version, n)
	}
	for _, k := range a.Keys {
		if len(k.Secret) < 16 || len(k.Secret) > maxKey {
			return fmt.Errorf("assignment %d: key of epoch %d has %d bytes, must have 16 to %d", a.Version, k.Epoch, len(k.Secret), maxKey)
		}
	}
	if len(a.Keys) == 2 && a.Keys[0].Epoch+1 != a.Keys[1].Epoch {
		return fmt.Errorf("assignment %d: epochs %d and %d are no neighbours", a.Version, a.Keys[0].Epoch, a.Keys[1].Epoch)
	}
	if !slices.ContainsFunc(a.Keys, func(k Key) bool { return k.Epoch == a.StampEpoch }) {
		return fmt.Errorf("assignment %d: stamps epoch %d without its key", a.Version, a.StampEpoch)
	}
	ids, names, seen := map[uint32]bool{}, map[string]bool{}, map[identity]bool{}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		if ids[v.ID] || names[v.Name] || seen[v.identity()] || v.ID == 0 || v.ID > MaxVIPID {
			return fmt.Errorf("assignment %d: vip %s: its id %d (1 to %d), name or address is taken or out of range", a.Version, v.Name, v.ID, MaxVIPID)
		}
		ids[v.ID], names[v.Name], seen[v.identity()] = true, true, true
		if err := errors.Join(v.validate(), v.validateNumbers(a.Version)); err != nil {
			return fmt.Errorf("assignment %d: vip %s: %w", a.Version, v.Name, err)
		}
	}
	return nil
}

func (v *VIP) validate() error {
	size := vip.Size{}
	if v.Bucketed() {
		size.Buckets = v.Buckets.Len()
	}
	if found := v.Check(size, nil); len(found) > 0 {
		return found[0]
	}
	if !plain(v.Address) {
		return fmt.Errorf("address %s is none that a VIP can have", v.Address)
	}
	if len(v.TierTwo) > 0 {
		if v.TierBits() == 0 {
			return errors.New("it has balancers of tier two and no tiers")
		}
		front := v.front()
		if err := front.validateSlots(); err != nil {
			return fmt.Errorf("tier two: %w", err)
		}
	}
	if err := v.validateSlots(); err != nil {
		return err
	}
	if err := errors.Join(v.validateChains(), v.validateMigration()); err != nil {
		return err
	}
	return v.validateHash()
}

func (v *VIP) validateSlots() error {
	for i, s := range v.Slots {
		switch {
		case int(s.Number) >= v.slotLimit():
			return fmt.Errorf("slot %d: at most %d", s.Number, v.slotLimit()-1)
		case i > 0 && v.Slots[i-1].Number >= s.Number:
			return fmt.Errorf("slot %d: not in ascending order", s.Number)
		case !plain(s.Address) || s.Server == "":
			return fmt.Errorf("slot %d: server %q at address %s: none that there can be", s.Number, s.Server, s.Address)
		case !slices.Contains([]State{Joining, Standby, Active, Draining, Resting}, s.State):
			return fmt.Errorf("slot %d: state %q is unknown to this version", s.Number, s.State)
		case s.Weight < 1 || s.Weight > vip.MaxWeight:
			return fmt.Errorf("slot %d: weight %d: must be 1 to 1000", s.Number, s.Weight)
		case s.OldWeight < 0 || s.OldWeight > vip.MaxWeight:
			return fmt.Errorf("slot %d: old weight %d: must be 1 to 1000, or 0 for none", s.Number, s.OldWeight)
		}
	}
	return nil
}

// plain: an address that has one spelling and goes into a map as it is.
func plain(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" }

// Mixable says why a and b must not be in force at the same time, nil if they
// may. They may if
//   - a slot that either gives new connections is known to the other;
//   - no slot number names two servers;
//   - the cookies that balancers decode have the form (scheme, width) that agents
//     give them in the other, and an ID names one VIP;
//   - the key that either stamps decodes in the other;
//   - everything that is not a cookie is hashed with the same key;
//   - a VIP's bucket tables have one length, and a newer version's table is no
//     older.
//
// Where connections without a cookie go may differ: a balancer follows its
// own version, and a planner (Plan, Change) takes care that those which it
// has already stay.
func Mixable(a, b *Assignment) error {
	if a.HashKey != b.HashKey {
		return errors.New("their hash keys differ")
	}
	for _, pair := range [][2]*Assignment{{a, b}, {b, a}} {
		x, y := pair[0], pair[1]
		stamp := x.Keys[slices.IndexFunc(x.Keys, func(k Key) bool { return k.Epoch == x.StampEpoch })]
		if !slices.ContainsFunc(y.Keys, func(k Key) bool { return k.Epoch == stamp.Epoch && bytes.Equal(k.Secret, stamp.Secret) }) {
			return fmt.Errorf("version %d stamps epoch %d, whose key version %d does not have", x.Version, x.StampEpoch, y.Version)
		}
		for i := range x.VIPs {
			if err := mixableVIP(x, y, &x.VIPs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func mixableVIP(x, y *Assignment, v *VIP) error {
	w := y.byIdentity(v.identity())
	for i := range y.VIPs {
		if y.VIPs[i].ID == v.ID && &y.VIPs[i] != w {
			return fmt.Errorf("VIP id %d is %s in version %d and %s in version %d", v.ID, v.Name, x.Version, y.VIPs[i].Name, y.Version)
		}
	}
	if w != nil && !mixableForms(v, w) {
		return fmt.Errorf("vip %s: %s in version %d, %s in version %d", v.Name, form(v), x.Version, form(w), y.Version)
	}
	if w != nil && w.ID == v.ID && x.Version <= y.Version {
		if err := v.tableFollows(w); err != nil {
			return err
		}
	}
	var others, tier []Slot // by ascending number, as v's
	if w != nil {
		others, tier = w.Slots, w.TierTwo
	}
	return errors.Join(mixableSlots(x, y, v, v.Slots, others), mixableSlots(x, y, v, v.TierTwo, tier))
}

// mixableSlots: of one kind, v's in x and others in y.
func mixableSlots(x, y *Assignment, v *VIP, slots, others []Slot) error {
	for i := range slots {
		s := &slots[i]
		for len(others) > 0 && others[0].Number < s.Number {
			others = others[1:]
		}
		var t *Slot
		if len(others) > 0 && others[0].Number == s.Number {
			t = &others[0]
		}
		if t == nil {
			if s.State == Active {
				return fmt.Errorf("vip %s: slot %d (%s) takes new connections in version %d and is unknown in version %d",
					v.Name, s.Number, s.Server, x.Version, y.Version)
			}
			continue
		}
		if t.Server != s.Server || t.Address != s.Address {
			return fmt.Errorf("vip %s: slot %d is %s (%s) in version %d and %s (%s) in version %d",
				v.Name, s.Number, s.Server, s.Address, x.Version, t.Server, t.Address, y.Version)
		}
	}
	return nil
}

// HostMayLag says why the agent of server must not stay at version a while
// others have b, nil if it may: it needs no more than its own slots, a stamp
// that decodes, and who had the buckets before that are its own.
func HostMayLag(a, b *Assignment, server string) error {
	if !slices.ContainsFunc(b.Keys, func(k Key) bool { return k.Epoch == a.StampEpoch }) {
		return fmt.Errorf("it stamps epoch %d, which version %d does not decode", a.StampEpoch, b.Version)
	}
	for i := range a.VIPs {
		v := &a.VIPs[i]
		w := b.byIdentity(v.identity())
		for _, s := range v.Slots {
			if s.Server != server || s.State == Resting {
				continue
			}
			if w == nil {
				return fmt.Errorf("it serves vip %s, which version %d does not have", v.Name, b.Version)
			}
			if stampsForm(w) != stampsForm(v) || agentsForm(w) != agentsForm(v) || chainForm(w) != chainForm(v) {
				return fmt.Errorf("it stamps connections of vip %s otherwise than version %d has it", v.Name, b.Version)
			}
			if t, ok := w.Slot(s.Number); !ok || t.Server != server || t.Address != s.Address {
				return fmt.Errorf("its slot %d of vip %s is another's, or gone, in version %d", s.Number, v.Name, b.Version)
			}
		}
	}
	for i := range b.VIPs {
		w := &b.VIPs[i]
		v := a.byIdentity(w.identity())
		if v != nil && w.Bucketed() {
			if err := v.knowsChains(w, server); err != nil {
				return fmt.Errorf("%w in version %d", err, b.Version)
			}
		}
		for _, s := range w.Slots {
			known := false
			if v != nil {
				_, known = v.Slot(s.Number)
			}
			if s.Server == server && s.State == Active && !known {
				return fmt.Errorf("it does not know its slot %d of vip %s, which takes new connections in version %d", s.Number, w.Name, b.Version)
			}
		}
	}
	return nil
}

// TunnelsMayLag says why tunnels would be refused if a daemon stayed at version a
// while others have b: servers take those that balancers send now or did a version
// ago. server is that of an agent, "" for a balancer.
func TunnelsMayLag(a, b *Assignment, server string) error {
	for i := range a.VIPs {
		v := &a.VIPs[i]
		concerns := server == "" || slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.Server == server })
		if w := b.byIdentity(v.identity()); w != nil && concerns && !v.Scheme.Row().Switched && w.Forwarding != v.Forwarding {
			return fmt.Errorf("vip %s: forwarding %s in version %d, %s in version %d", v.Name, v.Forwarding, a.Version, w.Forwarding, b.Version)
		}
	}
	if server == "" {
		return nil
	}
	return sourcesMayLag(a, b)
}

// MissedMayLag says why a daemon, whose last known version is last (0: nobody
// knows), must not stay where it is while others go from a to b, beyond what
// Mixable and HostMayLag say of a: it may not even have a. Its server is that
// of an agent, "" for a balancer, which needs to know all.
func MissedMayLag(a, b *Assignment, last uint64, server string) error {
	if last >= a.Version {
		return nil
	}
	has := fmt.Sprintf("it had version %d when it was last heard of", last)
	if last == 0 {
		has = "nobody knows which version it has"
	}
	if a.StampEpoch != b.StampEpoch && len(a.Keys) > 1 {
		return fmt.Errorf("%s, so perhaps not the key of epoch %d, which version %d stamps", has, b.StampEpoch, b.Version)
	}
	for i := range b.VIPs {
		w := &b.VIPs[i]
		v := a.byIdentity(w.identity())
		if v != nil && v.Migration != nil && v.Migration.Staged > last && (w.Migration == nil || w.Migration.Stage != v.Migration.Stage) &&
			(server == "" || slices.ContainsFunc(v.Slots, func(s Slot) bool { return s.Server == server && s.State != Resting })) {
			return fmt.Errorf("%s, and vip %s, which migrates from scheme %s to %s, is at stage %s since version %d: it goes on when all are",
				has, v.Name, v.Migration.From.Scheme, v.Scheme, v.Migration.Stage, v.Migration.Staged)
		}
		for _, s := range w.Slots {
			if s.State != Active || s.Version <= last || server != "" && s.Server != server {
				continue
			}
			if v != nil {
				if t, ok := v.Slot(s.Number); ok && t.State == Active {
					continue // decided before
				}
			}
			return fmt.Errorf("%s, and slot %d of vip %s (%s), which takes new connections in version %d, came with version %d",
				has, s.Number, w.Name, s.Server, b.Version, s.Version)
		}
	}
	return nil
}

// Accept says whether a daemon that has cur in force (nil: none) may put next
// in force; expected is the version that the caller saw (compare and set; 0
// for none). Versions go forward only. Unless catchUp, next must be mixable
// with cur, since other daemons may still have what cur is.
func Accept(cur, next *Assignment, expected uint64, catchUp bool) error {
	if err := next.Validate(); err != nil {
		return err
	}
	return AcceptValid(cur, next, expected, catchUp)
}

// AcceptValid is Accept of an assignment that is valid, as all are that Decode and Patch
// give: to look at millions of buckets once more takes longer than packets need wait.
func AcceptValid(cur, next *Assignment, expected uint64, catchUp bool) error {
	if cur == nil {
		if expected != 0 {
			return fmt.Errorf("version %d was expected, none is in force: %w", expected, ErrConflict)
		}
		return nil
	}
	switch {
	case cur.Version != expected:
		return fmt.Errorf("version %d was expected, %d is in force: %w", expected, cur.Version, ErrConflict)
	case next.Version <= cur.Version:
		return fmt.Errorf("version %d is in force and %d would go back; versions go forward only", cur.Version, next.Version)
	}
	for i := range next.VIPs {
		w := &next.VIPs[i]
		if v := cur.byIdentity(w.identity()); v != nil && v.ID == w.ID {
			if err := v.tableFollows(w); err != nil {
				return fmt.Errorf("version %d cannot follow %d: %w", next.Version, cur.Version, err)
			}
		}
	}
	if catchUp {
		return nil
	}
	if err := Mixable(cur, next); err != nil {
		return fmt.Errorf("version %d cannot follow %d: %w; the versions between come first", next.Version, cur.Version, err)
	}
	return nil
}
