package gobgp_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/bgp"
	"github.com/fairlead/fairlead/bgp/gobgp"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/vip"
)

// The rig: BIRD on a router, and this test's binary, as a speaker, on each machine
// beside it, each in a network namespace.
//
//	        ┌── 10.99.1.1, fd99:1::1  one
//	router ─┤
//	        └── 10.99.2.1, fd99:2::1  two
type rig struct {
	t    *testing.T
	name string
	dir  string
}

var rigs atomic.Uint32

const (
	four = "192.0.2.80"
	six  = "2001:db8::80"
	// patience is how long anything may take.
	patience = 30 * time.Second
)

func newRig(t *testing.T) *rig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	r := &rig{t: t, name: fmt.Sprintf("fl-bgp%d-%d-", os.Getpid(), rigs.Add(1)), dir: t.TempDir()}
	for _, machine := range []string{"router", "one", "two"} {
		r.must(netspace.Create(r.name + machine))
		t.Cleanup(func() {
			if err := errors.Join(netspace.Kill(r.name+machine), netspace.Delete(r.name+machine)); err != nil {
				t.Error(err)
			}
		})
		r.must(netspace.In(r.name+machine, func() error {
			return errors.Join(netspace.Sysctls(netspace.MachineSysctls), netspace.LoopbackUp())
		}))
	}
	for i, machine := range []string{"one", "two"} {
		r.cable(machine, i+1)
	}
	return r
}

// cable lays one between the router and a machine.
func (r *rig) cable(machine string, n int) {
	at, err := netns.GetFromName(r.name + machine)
	r.must(err)
	defer at.Close()
	r.must(netspace.In(r.name+"router", func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "up", PeerNamespace: netlink.NsFd(int(at))}
		veth.Name = machine
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add veth: %w", err)
		}
		return addressed(machine, fmt.Sprintf("10.99.%d.254/24", n), fmt.Sprintf("fd99:%d::254/64", n))
	}))
	r.must(netspace.In(r.name+machine, func() error {
		return addressed("up", fmt.Sprintf("10.99.%d.1/24", n), fmt.Sprintf("fd99:%d::1/64", n))
	}))
}

// addressed brings a device up with addresses.
func addressed(device string, addresses ...string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return errors.Join(netspace.AddAddress(link, addresses...), netlink.LinkSetUp(link))
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// bird runs BIRD on the router; each is what stands in every neighbour's protocol.
func (r *rig) bird(each, rest string) {
	r.t.Helper()
	r.birdAs(routerAS, each, rest)
}

const routerAS = 65000

// birdAs is bird of an AS.
func (r *rig) birdAs(as int, each, rest string) {
	r.t.Helper()
	const protocol = `
protocol bgp %[1]s%[2]d {
  local as %[6]d;
  neighbor %[3]s as 65001;
  passive on;
  %[4]s { import all; export none; };
  %[5]s
}
`
	text := `log stderr all;
router id 10.99.0.254;
protocol device {}
protocol kernel { merge paths on; ipv4 { import none; export all; }; }
protocol kernel { merge paths on; ipv6 { import none; export all; }; }
` + rest
	for i, machine := range []string{"one", "two"} {
		text += fmt.Sprintf(protocol, machine, 4, fmt.Sprintf("10.99.%d.1", i+1), "ipv4", each, as)
		text += fmt.Sprintf(protocol, machine, 6, fmt.Sprintf("fd99:%d::1", i+1), "ipv6", each, as)
	}
	r.birdWith("bird", text)
}

// birdWith runs BIRD, one of a name, with a configuration.
func (r *rig) birdWith(name, text string) {
	r.t.Helper()
	file := filepath.Join(r.dir, name+".conf")
	r.must(os.WriteFile(file, []byte(text), 0o600))
	// The folder of a test may be too deep for a socket.
	socket := r.socket(name)
	log, err := os.Create(filepath.Join(r.dir, name+".log"))
	r.must(err)
	cmd := exec.Command("/usr/sbin/bird", "-f", "-c", file, "-s", socket)
	cmd.Stdout, cmd.Stderr = log, log
	if err := netspace.Start(r.name+"router", cmd); err != nil {
		r.t.Fatalf("start BIRD: %v; install bird2 (make deps)", err)
	}
	r.t.Cleanup(func() {
		if r.t.Failed() {
			text, _ := os.ReadFile(log.Name())
			r.t.Logf("BIRD's log:\n%s", text)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = log.Close()
		_ = os.Remove(socket)
	})
	if !netspace.WaitFor(patience, func() bool { _, err := os.Stat(socket); return err == nil }) {
		r.t.Fatal("BIRD does not listen")
	}
}

func (r *rig) socket(bird string) string { return filepath.Join(os.TempDir(), r.name+bird+".ctl") }

// birdc asks a BIRD.
func (r *rig) birdc(name string, args ...string) string {
	r.t.Helper()
	said, err := exec.Command("/usr/sbin/birdc", append([]string{"-s", r.socket(name)}, args...)...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("birdc %v: %v: %s", args, err, said)
	}
	return string(said)
}

// hops are the next hops of the route to an address in the router's kernel.
func (r *rig) hops(address string) (hops []string) {
	r.must(netspace.In(r.name+"router", func() error {
		family := netlink.FAMILY_V6
		if netip.MustParseAddr(address).Is4() {
			family = netlink.FAMILY_V4
		}
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return err
		}
		for _, route := range routes {
			if route.Dst == nil || route.Dst.IP.String() != address {
				continue
			}
			if route.Gw != nil {
				hops = append(hops, route.Gw.String())
			}
			for _, h := range route.MultiPath {
				hops = append(hops, h.Gw.String())
			}
		}
		return nil
	}))
	slices.Sort(hops)
	return hops
}

// until waits for the next hops of an address, and says how long that took.
func (r *rig) until(what, address string, want ...string) time.Duration {
	r.t.Helper()
	began := time.Now()
	for !slices.Equal(r.hops(address), want) {
		if time.Since(began) > patience {
			r.t.Fatalf("%s: next hops of %s are %v, want %v", what, address, r.hops(address), want)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// stays watches the next hops of an address for a while: they must not change.
func (r *rig) stays(what string, during time.Duration, address string, want ...string) {
	r.t.Helper()
	for began := time.Now(); time.Since(began) < during; time.Sleep(2 * time.Millisecond) {
		if is := r.hops(address); !slices.Equal(is, want) {
			r.t.Fatalf("%s: after %v next hops of %s are %v, want %v", what, time.Since(began), address, is, want)
		}
	}
}

// settings are a speaker's, given to it by its environment.
type settings struct {
	Routers      []string
	ID           string
	HoldTime     time.Duration
	Restart, BFD time.Duration
	Password     string
	RouterAS     int // 0: routerAS; -1: one after the other from two above it
	LocalAS      int
}

// speaker is a process that announces.
type speaker struct {
	r   *rig
	cmd *exec.Cmd
	in  *json.Encoder
	out *bufio.Scanner
}

const speakerEnv = "FAIRLEAD_TEST_SPEAKER"

// start begins a speaker on a machine; it is ready, and its VIPs are healthy.
func (r *rig) start(machine string, n int, s settings) *speaker {
	r.t.Helper()
	s.ID = fmt.Sprintf("10.99.%d.1", n)
	if s.Routers == nil {
		s.Routers = []string{fmt.Sprintf("10.99.%d.254", n), fmt.Sprintf("fd99:%d::254", n)}
	}
	env, err := json.Marshal(s)
	r.must(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), speakerEnv+"="+string(env))
	cmd.Stderr = r.t.Output()
	in, err := cmd.StdinPipe()
	r.must(err)
	out, err := cmd.StdoutPipe()
	r.must(err)
	r.must(netspace.Start(r.name+machine, cmd))
	p := &speaker{r, cmd, json.NewEncoder(in), bufio.NewScanner(out)}
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed, or has ended
	})
	return p
}

// order has the speaker do something, and gives its answer.
func (p *speaker) order(what string) (report bgp.Report) {
	p.r.t.Helper()
	p.r.must(p.in.Encode(what))
	if !p.out.Scan() {
		p.r.t.Fatalf("the speaker does not answer %s", what)
	}
	p.r.must(json.Unmarshal(p.out.Bytes(), &report))
	return report
}

// kill is SIGKILL, and waits for the end.
func (p *speaker) kill() {
	p.r.must(p.cmd.Process.Kill())
	_ = p.cmd.Wait() // it was killed
}

func TestMain(m *testing.M) {
	if env := os.Getenv(speakerEnv); env != "" {
		if err := speak(env); err != nil {
			fmt.Fprintln(os.Stderr, "speaker:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// speak is the process of a speaker: it does what is ordered, and answers with its
// report.
func speak(env string) error {
	var s settings
	if err := json.Unmarshal([]byte(env), &s); err != nil {
		return err
	}
	o := gobgp.Options{LocalAS: cmp.Or(s.LocalAS, 65001), RouterID: netip.MustParseAddr(s.ID), HoldTime: s.HoldTime, Restart: s.Restart,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("speaker", s.ID)}
	for i, router := range s.Routers {
		as := cmp.Or(s.RouterAS, routerAS)
		if as < 0 { // each its own
			as = routerAS + 2 + i
		}
		o.Neighbours = append(o.Neighbours, gobgp.Neighbour{Address: netip.MustParseAddr(router), AS: as, BFD: s.BFD, Password: s.Password})
	}
	g, err := gobgp.Open(o)
	if err != nil {
		return err
	}
	var unwell atomic.Bool
	node := func() (bgp.Node, error) {
		n := bgp.Node{Name: s.ID}
		for _, address := range []string{four, six} {
			v := bgp.VIP{Name: address, Address: netip.MustParseAddr(address), Announce: vip.AnnounceHealthy, Servers: 1, Healthy: 1,
				Communities: []string{"65001:7", "65001:1:2"}, MED: 9}
			if unwell.Load() {
				v.Healthy = 0
			}
			n.VIPs = append(n.VIPs, v)
		}
		return n, nil
	}
	a := bgp.New(g, node, bgp.Options{Log: o.Log, Restart: s.Restart})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	answers := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch order := strings.Trim(in.Text(), `"`); order {
		case "unwell", "well":
			unwell.Store(order == "unwell")
			a.Poke()
		case "leave":
			a.Leave()
		case "reset":
			if err := g.Reset(); err != nil {
				panic(err)
			}
		}
		if err := answers.Encode(a.Report()); err != nil {
			break
		}
	}
	stop()
	return <-ended
}
