package host

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/host/hosttest"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// TestListeners: real sockets of every kind, each of which takes a VIP's packets; it is
// told when the last of them is gone, and of those that never were there nothing.
func TestListeners(t *testing.T) {
	ns, err := hosttest.NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	told := map[uint32]int{}
	var l *listeners
	if err := ns.Do(func() (err error) {
		l, err = newListeners(slog.New(slog.DiscardHandler), func(vip uint32, _ string) { told[vip]++ })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.close()
	reuse := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }); failed != nil {
			return failed
		}
		return err
	}}
	if err := ns.Sysctl("net.ipv6.bindv6only", "0"); err != nil {
		t.Fatal(err)
	}
	tcp := func(network, address string) func() (func() error, error) {
		return func() (func() error, error) {
			s, err := reuse.Listen(context.Background(), network, address)
			if err != nil {
				return nil, err
			}
			return s.Close, nil
		}
	}
	udp := func(network, address string) func() (func() error, error) {
		return func() (func() error, error) {
			s, err := reuse.ListenPacket(context.Background(), network, address)
			if err != nil {
				return nil, err
			}
			return s.Close, nil
		}
	}
	four, six := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
	if err := ns.Do(func() error {
		lo, err := netlink.LinkByName(loopback)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}); err != nil {
		t.Fatal(err)
	}
	var services []tables.HostService
	var opens []func() (func() error, error)
	for i, c := range []struct {
		at    netip.Addr
		proto uint8
		open  func() (func() error, error)
	}{
		{four, wire.ProtoTCP, tcp("tcp4", "127.0.0.1:81")},
		{four, wire.ProtoTCP, tcp("tcp4", "0.0.0.0:82")},
		{four, wire.ProtoTCP, tcp("tcp", ":83")}, // of both families
		{six, wire.ProtoTCP, tcp("tcp", ":84")},
		{six, wire.ProtoTCP, tcp("tcp6", "[::1]:85")},
		{four, wire.ProtoUDP, udp("udp4", "127.0.0.1:86")},
		{four, wire.ProtoUDP, udp("udp", ":87")},
		{six, wire.ProtoUDP, udp("udp6", "[::1]:88")},
	} {
		services = append(services, tables.HostService{ID: uint32(i + 1), Name: fmt.Sprint("v", i+1), At: netip.AddrPortFrom(c.at, uint16(81+i)), Proto: c.proto})
		opens = append(opens, c.open)
	}
	nobody := tables.HostService{ID: 99, Name: "nobody", At: netip.AddrPortFrom(four, 99), Proto: wire.ProtoTCP}
	l.follow(append(services, nobody))
	l.look()
	first, ended := l.await(t.Context(), 0)
	if len(ended) > 0 || len(told) > 0 {
		t.Fatalf("before anybody listened: %v %v", ended, told)
	}
	open := func() (closes []func() error) {
		t.Helper()
		for i, o := range opens {
			if err := ns.Do(func() error {
				c, err := o()
				closes = append(closes, c)
				return err
			}); err != nil {
				t.Fatalf("service %d: %v", i+1, err)
			}
		}
		return closes
	}
	one, two := open(), open() // a server that is replaced while it runs has two for a moment
	l.look()
	for i := range services {
		if err := one[i](); err != nil {
			t.Fatal(err)
		}
	}
	l.look()
	if last, ended := l.await(canceled(t), first); last != first || len(ended) > 0 {
		t.Fatalf("one of two is gone: %v", ended)
	}
	// The number stays while it waits.
	heard := make(chan []Ended)
	go func() {
		_, ended := l.await(t.Context(), first)
		heard <- ended
	}()
	if err := two[0](); err != nil {
		t.Fatal(err)
	}
	l.look()
	if e := <-heard; len(e) != 1 || e[0].VIP != 1 || e[0].Why != "nobody listens on port 81 any more" {
		t.Fatalf("heard %v", e)
	}
	for _, c := range two[1:] {
		if err := c(); err != nil {
			t.Fatal(err)
		}
	}
	l.look()
	l.look()
	last, ended := l.await(t.Context(), first)
	if len(ended) != len(services) || len(told) != len(services) {
		t.Errorf("of %d services: %v, told %v", len(services), ended, told)
	}
	for vip, n := range told {
		if n != 1 {
			t.Errorf("VIP %d was told %d times", vip, n)
		}
	}
	// Who has heard of all waits; who heard another life's numbers does not.
	if again, ended := l.await(canceled(t), last); again != last || len(ended) > 0 {
		t.Errorf("again: %v", ended)
	}
	for _, seen := range []uint64{0, first - 1, last + 1} {
		if now, ended := l.await(t.Context(), seen); now != last || len(ended) > 0 {
			t.Errorf("seen %d: %d %v", seen, now, ended)
		}
	}
	// A VIP that is followed anew keeps what was seen; one that is another does not.
	l.follow(services[1:])
	if _, ended := l.await(t.Context(), first); len(ended) != len(services)-1 {
		t.Errorf("without the first VIP: %v", ended)
	}
	began := time.Now()
	const looks = 2000
	for range looks {
		l.look()
	}
	t.Logf("a look at %d VIPs takes %v", len(services)-1, time.Since(began)/looks)
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
