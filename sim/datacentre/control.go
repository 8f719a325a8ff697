package datacentre

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/chash"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/scheme/cheetah"
	"github.com/fairlead/fairlead/sim/pcc"
	choices "github.com/fairlead/fairlead/vip"
)

// control counts what changes cost, in bytes to one balancer.
type control struct {
	// changes of VIPs that concern where connections go; settles are the
	// others: a server that was taken out counts as empty.
	changes, settles int64
	// records are those of the servers that changed: what a scheme needs whose
	// tables follow from the servers alone.
	records int64
	// rows is by scheme (schemeNames) what else it would take to hand out its
	// new table: of buckets, which must be, the difference as the product
	// encodes it; of others, which each balancer can make for itself, the rows
	// that changed.
	rows []int64
}

func newControl() control { return control{rows: make([]int64, len(schemeNames))} }

// add sums another one up.
func (c *control) add(o *control) {
	c.changes, c.settles, c.records = c.changes+o.changes, c.settles+o.settles, c.records+o.records
	for i, n := range o.rows {
		c.rows[i] += n
	}
}

// newest are a VIP's newest tables, by scheme (schemeNames): entries of the data
// plane, or a table of buckets.
type newest []struct {
	entries []uint32
	buckets *buckets.Table
}

func (v *vip) tables() newest {
	t := make(newest, len(v.schemes))
	for i, s := range v.schemes {
		if e, ok := s.(interface{ entries() []uint32 }); ok {
			t[i].entries = e.entries()
		} else {
			t[i].buckets = pcc.Buckets(s)
		}
	}
	return t
}

// change counts one: of the tables before and after, and the servers' records.
func (c *control) change(before, after newest, ch *change, records int64) error {
	c.records += records
	if !ch.moves() {
		c.settles++
		return nil
	}
	c.changes++
	for i, t := range after {
		for r, e := range t.entries {
			if e != before[i].entries[r] {
				c.rows[i] += rowBytes
			}
		}
		if t.buckets == nil {
			continue
		}
		delta, err := buckets.Delta(before[i].buckets, t.buckets)
		if err != nil {
			return err
		}
		c.rows[i] += int64(len(delta))
	}
	return nil
}

// rowBytes is what it takes to tell an entry of a table: its number and itself,
// four octets each.
const rowBytes = 8

// records is the length of the records of the servers that a change concerns,
// as an assignment holds them.
func (v *vip) records(c *change) (total int64) {
	for _, part := range []struct {
		servers []uint16
		state   controller.State
	}{{c.out, controller.Draining}, {c.failed, controller.Draining}, {c.over, controller.Standby}, {c.in, controller.Active}} {
		for _, n := range part.servers {
			total += int64(len(v.record(n, part.state)))
		}
	}
	return total
}

// record is what an assignment says of a server, as JSON without blanks.
func (v *vip) record(n uint16, state controller.State) []byte {
	b, err := json.Marshal(v.slot(n, state))
	if err != nil {
		panic(err) // no field can fail
	}
	return b
}

// slot is a server as an assignment has it. Its address is one of 10.0.0.0/8.
func (v *vip) slot(n uint16, state controller.State) controller.Slot {
	id := v.before + int(n)
	addr := [4]byte{10}
	binary.BigEndian.PutUint32(addr[:], 10<<24|uint32(id)&0xffffff)
	ip := netip.AddrFrom4(addr)
	return controller.Slot{
		Number: n, Server: fmt.Sprintf("server-%d", id), Address: ip, Weight: 1, State: state,
		Version: uint64(v.pool.Version), API: "https://" + ip.String() + ":4180",
	}
}

// assignment is the length of all that an assignment says of the VIP, as the
// product encodes it today; table: with its table of buckets.
func (v *vip) assignment(table *buckets.Table) int64 {
	a := controller.VIP{
		ID:       uint32(v.number + 1),
		Settings: choices.Settings{Name: fmt.Sprintf("vip-%d", v.number), Address: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Port: 443, Protocol: "tcp", Scheme: pcc.Cheetah, Policy: "rr", Affinity: "connection", Forwarding: "gue", CookieBits: cheetah.MaxBits, Hash: chash.KindAnchor, Capacity: v.capacity(v.size[v.number])},
	}
	if table != nil {
		a.Scheme, a.Buckets, a.Hash = "beamer", table, ""
	}
	for n := range v.size[v.number] {
		a.Slots = append(a.Slots, v.slot(uint16(n), controller.Active))
	}
	one := controller.Assignment{VIPs: []controller.VIP{a}}
	return int64(len(one.Encode()) - len((&controller.Assignment{}).Encode()))
}
