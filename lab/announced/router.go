package announced

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/netspace"
)

// router is the lab's router and its routing daemon.
type router struct {
	lab  *lab.Lab
	name string // of routers
	// folder is FRR's own; empty: there is none.
	folder string
}

func routerNames() []string { return []string{"bird", "frr"} }

// address is the VIP's that is looked at.
func (r *router) address() string { return r.lab.VIPs[0].Address.String() }

// BIRD's part in docs/bgp.md is this.
const birdHead = `log stderr all;
router id 10.77.1.1;
protocol device {}
protocol kernel { merge paths on; ipv4 { import none; export all; }; }
protocol kernel { merge paths on; ipv6 { import none; export all; }; }
`

const birdNeighbour = `protocol bgp lb%[1]d_%[2]s {
  local as %[3]d;
  neighbor %[4]s as %[5]d;
  passive on;
  graceful restart on;
  %[2]s { import all; export none; };
}
`

// FRR's part in docs/bgp.md is this.
const frrHead = `frr defaults datacenter
router bgp %[1]d
 bgp router-id 10.77.1.1
 no bgp ebgp-requires-policy
 bgp graceful-restart
 timers bgp 1 3
 neighbor balancers peer-group
 neighbor balancers remote-as %[2]d
 neighbor balancers passive
`

const frrTail = ` address-family %[1]s unicast
  maximum-paths 16
%[2]s  exit-address-family
`

// start starts the routing daemon in the router's namespace, where it ends with the
// lab, and says which version it is.
func (r *router) start() (version string, err error) {
	if r.name == "bird" {
		text := birdHead
		for n := 1; n <= r.lab.LBs; n++ {
			four, six := lab.FrontAddresses(n)
			text += fmt.Sprintf(birdNeighbour, n, "ipv4", lab.RouterAS, four, lab.FrontAS) + fmt.Sprintf(birdNeighbour, n, "ipv6", lab.RouterAS, six, lab.FrontAS)
		}
		file := filepath.Join(r.lab.Dir(), "bird.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		return r.spawn("/usr/sbin/bird", "bird2", "-f", "-c", file, "-s", filepath.Join(r.lab.Dir(), "bird.ctl"))
	}
	text := fmt.Sprintf(frrHead, lab.RouterAS, lab.FrontAS)
	var four, six string
	for n := 1; n <= r.lab.LBs; n++ {
		a, b := lab.FrontAddresses(n)
		text += fmt.Sprintf(" neighbor %s peer-group balancers\n neighbor %s peer-group balancers\n", a, b)
		// Each family goes over its own sessions.
		four += fmt.Sprintf("  no neighbor %s activate\n", b)
		six += fmt.Sprintf("  neighbor %s activate\n", b)
	}
	text += fmt.Sprintf(frrTail, "ipv4", four) + fmt.Sprintf(frrTail, "ipv6", six)
	if err := r.openFolder(); err != nil {
		return "", err
	}
	at := func(name string) string { return filepath.Join(r.folder, name) }
	for _, daemon := range []struct{ name, text string }{{"zebra", ""}, {"bgpd", text}} {
		file := at(daemon.name + ".conf")
		if err := os.WriteFile(file, []byte(daemon.text), 0o644); err != nil {
			return "", err
		}
		version, err = r.spawn("/usr/lib/frr/"+daemon.name, "frr", "-f", file, "-i", at(daemon.name+".pid"), "-z", at("zserv.api"), "--vty_socket", r.folder, "-P", "0", "--log", "stdout")
		if err != nil {
			return "", err
		}
		if !netspace.WaitFor(patience, func() bool { _, err := os.Stat(at("zserv.api")); return err == nil }) {
			return "", fmt.Errorf("zebra does not listen; see %s", filepath.Join(r.lab.Dir(), "zebra.log"))
		}
	}
	return version, nil
}

// openFolder makes the folder of FRR's daemons, whose user may not enter the lab's.
func (r *router) openFolder() error {
	frr, err := user.Lookup("frr")
	if err != nil {
		return fmt.Errorf("FRR's user: %w; install FRR: apt-get install frr", err)
	}
	uid, err := strconv.Atoi(frr.Uid)
	if err != nil {
		return err
	}
	if r.folder, err = os.MkdirTemp("", r.lab.Name+"frr"); err != nil {
		return err
	}
	return os.Chown(r.folder, uid, -1)
}

// close removes what start made outside of the lab.
func (r *router) close() error {
	if r.folder == "" {
		return nil
	}
	return os.RemoveAll(r.folder)
}

// spawn starts a program of a Debian package.
func (r *router) spawn(program, from string, args ...string) (version string, err error) {
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("%s is not there; install it: apt-get install %s", program, from)
	}
	said, _ := exec.Command(program, "--version").CombinedOutput() // BIRD says it with status 0, FRR as well
	version, _, _ = strings.Cut(strings.TrimSpace(string(said)), "\n")
	log, err := os.Create(filepath.Join(r.lab.Dir(), filepath.Base(program)+".log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	namespace, err := r.lab.Machine("router")
	if err != nil {
		return "", err
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.lab.Dir(), log, log
	if err := netspace.Start(namespace, cmd); err != nil {
		return "", fmt.Errorf("start %s: %w", program, err)
	}
	go cmd.Wait() // taking the lab down ends it
	return version, nil
}

// hops are the next hops of the VIP in the router's kernel.
func (r *router) hops() (hops []string, err error) {
	namespace, err := r.lab.Machine("router")
	if err != nil {
		return nil, err
	}
	err = netspace.In(namespace, func() error {
		to := netip.MustParseAddr(r.address())
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, 0)
		if err != nil {
			return fmt.Errorf("list the router's routes: %w", err)
		}
		for _, route := range routes {
			if route.Dst == nil || route.Dst.IP.String() != to.String() {
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
	})
	slices.Sort(hops)
	return hops, err
}

// until waits until the VIP's next hops are those, and says when they were.
func (r *router) until(ctx context.Context, want ...string) (at time.Time, err error) {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		hops, err := r.hops()
		if err != nil {
			return at, err
		}
		if slices.Equal(hops, want) {
			return time.Now(), nil
		}
		if ctx.Err() != nil {
			return at, ctx.Err()
		}
		if time.Since(began) > patience {
			return at, fmt.Errorf("the router's next hops of %s are %v after %v, must be %v", r.address(), hops, patience, want)
		}
	}
}

// watch looks all the time whether the next hops are those; what it returns ends that,
// and says for how long they were not.
func (r *router) watch(want []string) (end func() time.Duration) {
	stop, away := make(chan struct{}), make(chan time.Duration)
	go func() {
		var sum time.Duration
		for last := time.Now(); ; time.Sleep(2 * time.Millisecond) {
			hops, err := r.hops()
			now := time.Now()
			if err != nil || !slices.Equal(hops, want) {
				sum += now.Sub(last)
			}
			last = now
			select {
			case <-stop:
				away <- sum
				return
			default:
			}
		}
	}()
	return func() time.Duration { close(stop); return <-away }
}
