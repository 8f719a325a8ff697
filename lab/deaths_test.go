package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netspace"
)

// TestOwners: who answers a SYN, or refuses it, is known by the time to live.
func TestOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("captures need root: run the tests with sudo")
	}
	name := namespacePrefix(fmt.Sprint("owners", os.Getpid())) + "x"
	if err := netspace.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netspace.Delete(name) })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := &load{plan: LoadPlan{Returns: true}, flows: map[endpoints]*flow{}, port: minPort - 1}
	connect := func(to string) (*connection, error) {
		c := &connection{l: l}
		d := net.Dialer{}
		if err := c.takePort(&d, to); err != nil {
			return c, err
		}
		d.LocalAddr.(*net.TCPAddr).IP = net.IPv4(127, 0, 0, 1) // there is no router
		c.ends.client = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.ends.client.Port())
		conn, err := d.Dial("tcp", to)
		if err == nil {
			conn.Close()
		}
		return c, err
	}
	var open, refused *connection
	var after time.Time
	err := netspace.In(name, func() error {
		if err := netspace.LoopbackUp(); err != nil {
			return err
		}
		// As the client sees server3, behind the router.
		err := netspace.Sysctl("net.ipv4.ip_default_ttl", strconv.Itoa(firstTTL+2-1))
		if err != nil {
			return err
		}
		if l.capture, err = captureResets(ctx, "lo", true); err != nil {
			return err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		if open, err = connect(listener.Addr().String()); err != nil {
			return err
		}
		listener.Close()
		if refused, err = connect(listener.Addr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("want a refusal: %w", err)
		}
		after = time.Now()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for c, opened := range map[*connection]bool{open: true, refused: false} {
		var who owner
		if !netspace.WaitFor(5*time.Second, func() (known bool) { who, known = l.capture.owner(c.ends); return known }) {
			t.Fatalf("nobody is known to have answered %v", c.ends)
		}
		if who.server != "server3" || who.opened != opened || who.at.After(after) || after.Sub(who.at) > time.Minute {
			t.Errorf("%v is %+v's, before %v", c.ends, who, after)
		}
	}
}

// TestLostAndBack: a connection is lost with a server that died while it was there, and
// with no other; what a server answers when it is back counts again.
func TestLostAndBack(t *testing.T) {
	begin := time.Now()
	at := func(s float64) time.Time { return begin.Add(seconds(s)) }
	l := &load{plan: LoadPlan{Returns: true}, outages: map[string][]outage{}, open: map[*connection]struct{}{}, capture: &resetCapture{}}
	l.crashed(LoadNotice{Crashed: "s1", From: at(10), To: at(10.1)})
	l.crashed(LoadNotice{Back: "s1", From: at(15), To: at(16)})
	l.crashed(LoadNotice{Crashed: "s1", From: at(30), To: at(30.1)})
	ends := endpoints{client: netip.MustParseAddrPort("192.0.2.1:1")}
	mine := func(by string, s float64, opened bool) *owner { return &owner{by, at(s), opened} }
	lost := func(server string, by *owner) bool {
		l.capture.owners = map[endpoints]owner{}
		if by != nil {
			l.capture.owners[ends] = *by
		}
		return l.lost(&connection{l: l, server: server, ends: ends}, net.ErrClosed)
	}
	for i, c := range []struct {
		server string // that answered a request
		by     *owner // who answered the SYN, or refused it
		want   bool
	}{
		{"s1", mine("s1", 5, true), true}, {"s1", mine("s1", 20, true), true}, {"s2", mine("s2", 5, true), false},
		{"s2", mine("s1", 5, true), false}, {"s1", mine("s2", 5, true), false},
		{"", mine("s1", 4, true), true}, {"", mine("s2", 4, true), false},
		{"", mine("s1", 12, false), true}, {"", mine("s1", 15.5, false), true}, {"", mine("s1", 31, false), true},
		{"", mine("s1", 4, false), false}, {"", mine("s1", 20, false), false}, {"", mine("s2", 12, false), false},
		{"", nil, false},
	} {
		if got := lost(c.server, c.by); got != c.want {
			t.Errorf("case %d: %v, want %v", i, got, c.want)
		}
	}
	l.crashed(LoadNotice{Back: "s1", From: at(33), To: at(34)})
	if lost("s1", mine("s1", 35, true)) {
		t.Error("what the server answered after it was back is lost")
	}
}
