package router

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
)

// everyParser parses a message as all kinds; which error comes is of no
// interest, but none may read beyond the message.
func everyParser(m netlink.Message) {
	parseLink(m)
	parseRoute(m)
	parseNexthop(m)
	parseNeighbour(m)
	parseRule(m)
	parseForwarding(m)
	partOf(m)
}

// What the kernel says is read, whole and cut off anywhere.
func TestParse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	name := fmt.Sprint("fl-fparse", os.Getpid())
	if err := netspace.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netspace.Delete(name) })
	var p picture
	err := netspace.In(name, func() error {
		if err := netspace.LoopbackUp(); err != nil {
			return err
		}
		k, err := openKernel()
		if err != nil {
			return err
		}
		defer k.close()
		for which := range parts {
			if err := p.read(k, which); err != nil {
				return err
			}
		}
		for kind, header := range map[uint16]int{
			unix.RTM_GETLINK: unix.SizeofIfInfomsg, unix.RTM_GETROUTE: unix.SizeofRtMsg, unix.RTM_GETRULE: unix.SizeofRtMsg,
			unix.RTM_GETNEIGH: unix.SizeofNdMsg, unix.RTM_GETNETCONF: 4, unix.RTM_GETNEXTHOP: unix.SizeofNhmsg,
		} {
			messages, err := k.list(kind, make([]byte, header))
			if err != nil {
				return err
			}
			for _, m := range messages {
				for n := range m.Data {
					everyParser(netlink.Message{Header: m.Header, Data: m.Data[:n:n]})
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	local := slices.ContainsFunc(p.routes4, func(r route) bool {
		return r.prefix == netip.MustParsePrefix("127.0.0.0/8") && r.kind == unix.RTN_LOCAL && r.table == unix.RT_TABLE_LOCAL
	})
	if others := p.otherRules(); p.links[1].name != "lo" || !local || len(others) > 0 {
		t.Errorf("links %+v, routes %+v, other rules %v", p.links, p.routes4, others)
	}
}

// A device with a VLAN on it that takes tags off is found, and not when it is
// told to leave them. The veth here passes for a card.
func TestReadStrips(t *testing.T) {
	w := newWires(t)
	w.must(netspace.In(w.router, func() error {
		k, err := openKernel()
		if err != nil {
			return err
		}
		defer k.close()
		index := w.index["in0"]
		strips := func(want bool) {
			t.Helper()
			p := picture{links: map[int]link{index: {index: index, name: "in0", ether: true}, 99: {index: 99, name: "v7", kind: "vlan", parent: index, vlan: 7, ether: true}}}
			if p.readStrips(k); p.strips[index] != want {
				t.Errorf("strips %v, want %v", p.strips, want)
			}
		}
		strips(true)
		if out, err := exec.Command("ethtool", "-K", "in0", "rxvlan", "off").CombinedOutput(); err != nil {
			return fmt.Errorf("ethtool: %w: %s", err, out)
		}
		strips(false)
		return nil
	}))
}

// A veth that leaves checksums to the receiver is found, and named where
// packets come in by it.
func TestUnfinished(t *testing.T) {
	w := newWires(t)
	w.must(netspace.In(w.router, func() error {
		k, err := openKernel()
		if err != nil {
			return err
		}
		defer k.close()
		f := &Follower{}
		for i, want := range []string{"veths with tx checksum offload: in0, out0;", "offload: out0;"} {
			if err := errors.Join(f.picture.read(k, partLinks), f.picture.read(k, partFeatures)); err != nil {
				return err
			}
			devices := []Device{{Ifindex: w.index["in0"]}, {Ifindex: w.index["in0"], VLAN: 7}, {Ifindex: w.index["out0"]}}
			if got := f.unfinished(devices); len(got) != 1 || !strings.Contains(got[0], want) {
				t.Errorf("look %d: %q, want %q", i, got, want)
			}
			if err := netspace.SetOffloads("in0"); err != nil {
				return err
			}
		}
		return nil
	}))
}

// A multipath route: its next hops, flags and weights; cut off anywhere.
func TestParseWays(t *testing.T) {
	one := func(device uint32, hops, flags byte, gateway netip.Addr) []byte {
		a := netlink.NewAttributeEncoder()
		a.Bytes(unix.RTA_GATEWAY, gateway.AsSlice())
		attributes, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, unix.SizeofRtNexthop)
		binary.NativeEndian.PutUint16(b, uint16(len(b)+len(attributes)))
		b[2], b[3] = flags, hops
		binary.NativeEndian.PutUint32(b[4:], device)
		return append(b, attributes...)
	}
	whole := slices.Concat(one(2, 0, 0, addr("10.9.0.2")), one(3, 4, rtnhLinkdown, addr("fe80::1")))
	got, err := parseWays(whole)
	want := []way{{device: 2, gateway: addr("10.9.0.2"), weight: 1}, {device: 3, gateway: addr("fe80::1"), weight: 5, dead: true}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
	for n := range whole {
		if ways, err := parseWays(whole[:n:n]); err == nil && len(ways) > 1 {
			t.Errorf("%d of %d bytes: %+v", n, len(whole), ways)
		}
	}
}
