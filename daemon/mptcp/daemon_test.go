package mptcp

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/topology"
)

// TestWarnStranger: `fairlead mptcp` on a machine that is no host of the fabric
// says that there is nothing to do.
func TestWarnStranger(t *testing.T) {
	for address, warned := range map[string]bool{"192.0.2.1": true, "127.0.0.1": false} {
		f := &topology.Fabric{Nodes: []topology.Node{
			{Name: "leaf1", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, // a router
			{Name: "h1", Host: true, Addresses: []netip.Addr{netip.MustParseAddr(address)}},
		}}
		var log bytes.Buffer
		o := Options{File: "fabric.yaml", Log: slog.New(slog.NewTextHandler(&log, nil))}
		o.warnStranger(f)
		if got := strings.Contains(log.String(), "has no address of a host") && strings.Contains(log.String(), "h1 "+address); got != warned || !warned && log.Len() > 0 {
			t.Errorf("h1 is %s: %q", address, log.String())
		}
	}
}
