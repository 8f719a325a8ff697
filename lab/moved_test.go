package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/lab/netspace"
)

// movedConn is a connection that asks again and again.
type movedConn struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
	from    netip.AddrPort
	server  string // who answered first
}

func (l *Lab) dialMoved(t *testing.T) *movedConn {
	t.Helper()
	c := &movedConn{t: t}
	if err := netspace.In(l.namespace("client"), func() (err error) {
		c.Conn, err = (&net.Dialer{Timeout: readyWait}).DialContext(t.Context(), "tcp4", netip.AddrPortFrom(vipAddress4(1), httpPort).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.answers, c.from = bufio.NewReader(c), netip.MustParseAddrPort(c.LocalAddr().String())
	c.server = c.ask("/", 1)
	return c
}

// ask asks so many times; all must be answered by one server, which it returns.
func (c *movedConn) ask(path string, times int) (server string) {
	c.t.Helper()
	for i := range times {
		_ = c.SetDeadline(time.Now().Add(answerTimeout))
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, "http://lab"+path, nil)
		if err == nil {
			err = r.Write(c)
		}
		var answer *http.Response
		if err == nil {
			answer, err = http.ReadResponse(c.answers, r)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
		}
		if err != nil {
			c.t.Fatalf("%v, question %d: %v", c.from, i, err)
		}
		if by := answer.Header.Get(serverHeader); server != "" && by != server || c.server != "" && by != c.server {
			c.t.Fatalf("%v, of %s: answered by %s", c.from, c.server, by)
		} else {
			server = by
		}
	}
	return server
}

// scrubs makes a server one that passes on what comes for the VIP, as a plain Linux router
// does, and returns how to say whose each connection is, and how many packets it passed on.
func (l *Lab) scrubs(t *testing.T, machine string) (of func(from netip.AddrPort, server int), passed func() uint64) {
	run := func(args ...string) {
		t.Helper()
		if err := netspace.In(l.namespace(machine), func() error {
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	vip := vipAddress4(1).String()
	for _, s := range []string{"net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf." + uplink + ".send_redirects=0",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf." + uplink + ".rp_filter=0"} {
		run("sysctl", "-qw", s)
	}
	run("sh", "-c", "ip addr del "+vip+"/32 dev lo")
	// Checks have to be answered, by whomever.
	run("ip", "route", "add", vip, "via", serverAddress4(1))
	for n := range 2 {
		run("ip", "route", "add", vip, "via", serverAddress4(n+1), "table", strconv.Itoa(101+n))
	}
	of = func(from netip.AddrPort, server int) {
		run("ip", "rule", "add", "from", from.Addr().String(), "to", vip, "ipproto", "tcp", "sport", strconv.Itoa(int(from.Port())), "lookup", strconv.Itoa(100+server))
	}
	passed = func() (n uint64) {
		if err := netspace.In(l.namespace(machine), func() error {
			text, err := os.ReadFile("/proc/thread-self/net/snmp")
			if err != nil {
				return err
			}
			var names []string
			for _, line := range strings.Split(string(text), "\n") {
				fields := strings.Fields(line)
				if len(fields) == 0 || fields[0] != "Ip:" {
					continue
				}
				if names == nil {
					names = fields
					continue
				}
				for i, name := range names {
					if name == "ForwDatagrams" {
						n, err = strconv.ParseUint(fields[i], 10, 64)
					}
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	return of, passed
}

// Connections are taken through a server that passes them on, and back, alone and all of
// a prefix: their own servers answer throughout, also when the one between is dead.
func TestMoveConnections(t *testing.T) {
	t.Parallel()
	const asked = 30
	o := Options{Name: fmt.Sprint("move", os.Getpid()), Servers: 2, Standby: 1, LBs: 2, Program: testProgram(t), Scheme: "cheetah-stateful"}
	l, err := Up(t.Context(), o, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Down(o.Name) })
	of, passed := l.scrubs(t, "server3")
	all := make([]*movedConn, 12)
	var one, other *movedConn
	for i := range all {
		all[i] = l.dialMoved(t)
		if one == nil && all[i].server == "server1" {
			one = all[i]
		} else if all[i].server == "server2" {
			other = all[i]
		}
		of(all[i].from, int(all[i].server[len("server")]-'0'))
	}
	if one == nil || other == nil {
		t.Fatal("policy rr gave a server no connection")
	}
	move := func(args ...string) (answers []struct {
		Error          string
		Moved, Matched uint64
		Connections    []struct{ Client, Server, Home string }
	}) {
		t.Helper()
		args = append([]string{"connections", "move", "--vip", "web", "-f", l.ConfigPath(), "-o", "json"}, args...)
		out, said, err := l.Command(t.Context(), "lb1", nil, args...)
		if err != nil {
			t.Fatalf("%v: %v: %s %s", args, err, out, said)
		}
		if err := json.Unmarshal([]byte(out), &answers); err != nil {
			t.Fatalf("%v: %s: %v", args, out, err)
		}
		return answers
	}
	scrubber := l.daemonName("server3")
	moved := uint64(0)
	for _, a := range move(one.from.String(), "--to", scrubber) {
		moved += a.Moved
		for _, c := range a.Connections {
			if c.Server != scrubber || c.Home != l.daemonName("server1") {
				t.Errorf("moved: %+v", c)
			}
		}
	}
	if moved != 1 {
		t.Fatalf("%d connections were moved", moved)
	}
	// Health checks of the standby pass through, too; these are few beside.
	through := func(c *movedConn) uint64 {
		before := passed()
		c.ask("/", asked)
		c.ask("/bytes/300000", 1)
		return passed() - before
	}
	if n := through(one); n < asked {
		t.Errorf("moved, %d packets went through the scrubbing server, of %d questions", n, asked)
	}
	if n := through(other); n > asked/2 {
		t.Errorf("of another connection %d packets went through it", n)
	}
	move(one.from.String(), "--back")
	if n := through(one); n > asked/2 {
		t.Errorf("back, %d packets went through it", n)
	}
	prefix := netip.PrefixFrom(one.from.Addr(), 24).Masked().String()
	moved = 0
	for _, a := range move(prefix, "--to", scrubber) {
		moved += a.Moved
	}
	if moved != uint64(len(all)) {
		t.Errorf("of a prefix %d connections were moved, of %d", moved, len(all))
	}
	for _, c := range all {
		if n := through(c); n < asked {
			t.Errorf("%v of %s, moved with all: %d packets went through", c.from, c.server, n)
		}
	}
	l.scrubberDies(t, all)
	move(prefix, "--back")
	for _, c := range all {
		c.ask("/", 2)
	}
	// What the balancers refuse.
	for _, c := range []struct{ args, want string }{
		{"203.0.113.9 --to " + scrubber, "no balancer knows a connection"},
		{prefix + " --to nobody", "vip web has none of that name"},
		{"x --back", "must be an address and port"},
	} {
		args := append([]string{"connections", "move", "--vip", "web", "-f", l.ConfigPath()}, strings.Fields(c.args)...)
		if out, said, err := l.Command(t.Context(), "lb1", nil, args...); err == nil || !strings.Contains(out+said, c.want) {
			t.Errorf("%v: %v: %s %s", args, err, out, said)
		}
	}
}

// scrubberDies: what was moved through a server that is down goes to its own.
func (l *Lab) scrubberDies(t *testing.T, all []*movedConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := netspace.In(l.namespace("server3"), func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0)
	}); err != nil {
		t.Fatal(err)
	}
	for _, front := range l.fronts() {
		for {
			status, err := l.daemonStatus(ctx, front)
			if err == nil && holdsDownIn(status, "web", l.daemonName("server3")) {
				break
			}
			if sleep(ctx, 50*time.Millisecond) != nil {
				t.Fatalf("%s has not noticed that the scrubbing server is dead: %v", front, err)
			}
		}
	}
	for _, c := range all {
		c.ask("/", 3)
	}
}

func holdsDownIn(status *fairleadv1.GetStatusResponse, vip, server string) bool {
	for _, v := range status.Vips {
		for _, s := range v.Slots {
			if v.Name == vip && s.Server == server {
				return s.Health == fairleadv1.Health_HEALTH_DOWN
			}
		}
	}
	return false
}
