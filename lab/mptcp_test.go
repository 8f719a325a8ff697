package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/lab/netspace"
)

// path is a client's connection of Multipath TCP that asks one thing after
// another.
type path struct {
	conn   net.Conn
	read   *bufio.Reader
	server string // which answered first
}

// ask asks for the server's name.
func (p *path) ask() (string, error) {
	_ = p.conn.SetDeadline(time.Now().Add(answerTimeout))
	r, err := http.NewRequest(http.MethodGet, "http://lab/", nil)
	if err != nil {
		return "", err
	}
	if err := r.Write(p.conn); err != nil {
		return "", err
	}
	answer, err := http.ReadResponse(p.read, r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	return strings.TrimSpace(line), err
}

// additional is how many subflows the connection has beside its first (struct
// mptcp_info).
func (p *path) additional() (int, error) {
	raw, err := p.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	const mptcpInfo = 1
	var info string
	if ctl := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptString(int(fd), unix.SOL_MPTCP, mptcpInfo) }); ctl != nil {
		return 0, ctl
	}
	if err != nil || info == "" {
		return 0, fmt.Errorf("MPTCP_INFO: %d bytes, %w", len(info), err)
	}
	return int(info[0]), nil
}

// TestJoins has the kernel's own client join connections through two balancers:
// a join that reached another server than its connection's would be refused. A
// drain moves neither.
func TestJoins(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	o := Options{Name: fmt.Sprint("joins", os.Getpid()), LBs: 2, Servers: 3, Scheme: "beamer", Program: testProgram(t),
		NoTimestamps: true} // with them IPv6 has no room for ADD_ADDR
	l, err := Up(ctx, o, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Down(o.Name) })
	client := func(f func() error) {
		t.Helper()
		if err := netspace.In(l.namespace("client"), f); err != nil {
			t.Fatal(err)
		}
	}
	// A server announces its ports of both families, in any order. A connection
	// over IPv6 may take both, one over IPv4 only the one of its own.
	additional := map[string]int{"ipv4": 1, "ipv6": 2}
	client(func() error {
		out, err := exec.CommandContext(ctx, "ip", "mptcp", "limits", "set", "add_addr_accepted", "2", "subflows", "2").CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip mptcp: %w: %s", err, out)
		}
		return nil
	})
	const each = 20
	for _, v := range l.VIPs {
		if !v.MPTCP {
			continue
		}
		t.Run(v.family(), func(t *testing.T) {
			var paths []*path
			servers := map[string]int{}
			for range each {
				p := &path{}
				client(func() (err error) {
					d := net.Dialer{Timeout: answerTimeout}
					d.SetMultipathTCP(true)
					p.conn, err = d.DialContext(ctx, "tcp", v.Endpoint())
					return err
				})
				t.Cleanup(func() { p.conn.Close() })
				p.read = bufio.NewReader(p.conn)
				if p.server, err = p.ask(); err != nil {
					t.Fatal(err)
				}
				servers[p.server]++
				paths = append(paths, p)
			}
			if len(servers) != l.Servers {
				t.Errorf("connections at %v, want all %d servers", servers, l.Servers)
			}
			joined := func() bool {
				for _, p := range paths {
					if n, err := p.additional(); err != nil || n != additional[v.family()] {
						return false
					}
				}
				return established(t, l, v) == each
			}
			if !netspace.WaitFor(readyWait, joined) {
				for _, p := range paths {
					n, err := p.additional()
					t.Logf("at %s: %d additional subflows, %v", p.server, n, err)
				}
				t.Fatalf("%d joins are established, want %d", established(t, l, v), each)
			}
			err := l.change(ctx, l.front(1), func(ctx context.Context, c fairleadv1connect.FairleadClient) error {
				_, err := c.DrainServer(ctx, connect.NewRequest(&fairleadv1.DrainServerRequest{Vip: v.Name, Server: l.daemonName("server1")}))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range paths {
				if server, err := p.ask(); err != nil || server != p.server {
					t.Errorf("%s answers after the drain (%v), before %s", server, err, p.server)
				}
			}
			if !joined() {
				t.Errorf("%d joins are left after the drain, want %d", established(t, l, v), each)
			}
		})
	}
}

// established counts the client's connections to join ports of a VIP.
func established(t *testing.T, l *Lab, v VIP) (n int) {
	t.Helper()
	err := netspace.In(l.namespace("client"), func() error {
		address := v.Address.String()
		if v.Address.Is6() {
			address = "[" + address + "]"
		}
		out, err := exec.Command("ss", "-tnH", "state", "established", "dst", address, "dport", "ge", ":32768").Output()
		n = strings.Count(string(out), "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
