package tables

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/vip"
)

// trackingHashes are the hashes by which a scheme tracks what is foreseen.
var trackingHashes = []string{"table-hrw", "ring", "dx", "anchor"}

// assignment is one TCP VIP with servers 10.77.0.N in slots 0, 1, ….
func assignment(version uint64, servers ...int) *controller.Assignment {
	v := controller.VIP{
		ID:       1,
		Settings: vip.Settings{Name: "web", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: "tcp", Scheme: "cheetah", Policy: "rr", Affinity: "connection", Forwarding: "ipip", CookieBits: 12, Fragments: "drop", ICMPEcho: true},
	}
	for i, n := range servers {
		v.Slots = append(v.Slots, controller.Slot{Number: uint16(i), Server: fmt.Sprintf("s%d", n),
			Address: netip.AddrFrom4([4]byte{10, 77, 0, byte(n)}), Weight: 1, State: controller.Active})
	}
	return &controller.Assignment{Version: version, Keys: []controller.Key{{Epoch: 0, Secret: []byte("0123456789abcdef")}},
		HashKey: hash.Key{1, 2}, VIPs: []controller.VIP{v}}
}

// beamerAssignment is assignment's VIP by scheme beamer.
func beamerAssignment(t *buckets.Table, servers ...int) *controller.Assignment {
	a := assignment(uint64(t.Generation), servers...)
	v := &a.VIPs[0]
	v.Scheme, v.Policy, v.CookieBits, v.Buckets, v.ChainTime = vip.Beamer, "hash", 0, t, 4*time.Minute
	return a
}

// weights are servers 0 to n-1 of weight 1.
func weights(n int) (s []buckets.Server) {
	for i := range n {
		s = append(s, buckets.Server{Number: uint16(i), Weight: 1})
	}
	return s
}
