package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
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
	"github.com/fairlead/fairlead/wire"
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
	t.Parallel()
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
		if v.MPTCP {
			t.Run("strangers "+v.family(), func(t *testing.T) { strangers(t, l, v) })
		}
	}
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
			err := l.change(ctx, func(ctx context.Context, c fairleadv1connect.ControlClient) error {
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

// strangers sends SYNs to all ports of joins, plain ones and with a token that
// nobody has. No port answers: else their number would be that of the servers.
func strangers(t *testing.T, l *Lab, v VIP) {
	t.Helper()
	const firstPort, from, sentinels = 32768, 9000, 32
	client, family, include := netip.MustParseAddr(clientAddress4), unix.AF_INET, unix.IPPROTO_IP
	if v.Address.Is6() {
		client, family, include = netip.MustParseAddr(clientAddress6), unix.AF_INET6, unix.IPPROTO_IPV6
	}
	answered, listening := map[uint16]int{}, 0
	err := netspace.In(l.namespace("client"), func() error {
		c, err := captureAnswers(uplink)
		if err != nil {
			return err
		}
		defer unix.Close(c)
		out, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(out)
		if include == unix.IPPROTO_IPV6 {
			if err := unix.SetsockoptInt(out, include, unix.IPV6_HDRINCL, 1); err != nil {
				return err
			}
		}
		send := func(p wire.TCP) error {
			if v.Address.Is6() {
				return unix.Sendto(out, p.Packet(), 0, &unix.SockaddrInet6{Addr: v.Address.As16()})
			}
			return unix.Sendto(out, p.Packet(), 0, &unix.SockaddrInet4{Addr: v.Address.As4()})
		}
		frame := make([]byte, 256)
		read := func() {
			for {
				n, err := unix.Read(c, frame)
				if err != nil {
					return
				}
				p := wire.Parse(frame[:n])
				switch {
				case p.Protocol != wire.ProtoTCP || p.Src != v.Address:
				case p.SrcPort >= firstPort:
					answered[p.SrcPort]++
				case p.Is(wire.SYN|wire.ACK) && p.DstPort > from:
					listening++
				}
			}
		}
		for _, options := range [][]byte{nil, {30, 12, 0x10, 2, 1, 2, 3, 4, 5, 6, 7, 8}} {
			for port := firstPort; port < 1<<16; port++ {
				p := wire.TCP{Src: netip.AddrPortFrom(client, from), Dst: netip.AddrPortFrom(v.Address, uint16(port)), Flags: wire.SYN, Seq: 1, Options: options}
				if err := send(p); err != nil {
					return err
				}
				if port%256 == 0 {
					read()
				}
			}
		}
		// Those to the service, behind them on every way, are answered.
		for n := range uint16(sentinels) {
			if err := send(wire.TCP{Src: netip.AddrPortFrom(client, from+1+n), Dst: netip.AddrPortFrom(v.Address, uint16(v.Port)), Flags: wire.SYN, Seq: 1}); err != nil {
				return err
			}
		}
		if !netspace.WaitFor(readyWait, func() bool { read(); return listening >= sentinels }) {
			t.Errorf("%d of %d SYNs to the service were answered", listening, sentinels)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(answered) > 0 {
		t.Errorf("%d ports of joins answer strangers, of %d servers: %v", len(answered), l.Servers, answered)
	}
}

// captureAnswers is a socket with what arrives on a device of this namespace.
func captureAnswers(device string) (int, error) {
	d, err := net.InterfaceByName(device)
	if err != nil {
		return 0, err
	}
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	all := uint16(unix.ETH_P_ALL)
	err = errors.Join(unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, resetBuffer),
		unix.Bind(s, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: d.Index}))
	if err != nil {
		unix.Close(s)
	}
	return s, err
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

// family is ipv4 or ipv6.
func (v VIP) family() string {
	if v.Address.Is4() {
		return "ipv4"
	}
	return "ipv6"
}
