package doctor_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/inspect/doctor"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/netspace"
)

// clinic is a lab whose machines are made ill one after another:
//
//	client ── router ──┬── lb1
//	                   └── server1
type clinic struct {
	*lab.Lab
	t       *testing.T
	program string
}

// in runs a command in a machine's network and returns its output.
func (c *clinic) in(machine string, args ...string) (string, error) {
	namespace, err := c.Machine(machine)
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := exec.CommandContext(c.t.Context(), "nsenter", append([]string{"--net=/run/netns/" + namespace}, args...)...).CombinedOutput()
	return string(out), err
}

// must runs a command that has to work.
func (c *clinic) must(machine string, args ...string) {
	c.t.Helper()
	if out, err := c.in(machine, args...); err != nil {
		c.t.Fatalf("%s: %s: %v: %s", machine, strings.Join(args, " "), err, out)
	}
}

// examine is `fairlead doctor -o json` on a machine, and its exit status; under
// another command, if one is given.
func (c *clinic) examine(machine string, under ...string) ([]doctor.Check, int) {
	c.t.Helper()
	out, err := c.in(machine, append(under, c.program, "doctor", "-f", c.ConfigPath(), "--name", c.Name+"-"+machine, "-o", "json")...)
	status := 0
	if exit, ok := err.(*exec.ExitError); ok {
		status = exit.ExitCode()
	} else if err != nil {
		c.t.Fatal(err)
	}
	var report struct {
		Checks []doctor.Check `json:"checks"`
		Failed bool           `json:"failed"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	if report.Failed != (status == 1) {
		c.t.Errorf("failed is %v, exit status %d", report.Failed, status)
	}
	return report.Checks, status
}

func TestDoctor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the tests with sudo")
	}
	program := built.Fairlead(t)
	name := fmt.Sprint("doctor", os.Getpid())
	l, err := lab.Up(t.Context(), lab.Options{Name: name, Servers: 1, LBs: 1, Program: program}, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(name); err != nil {
			t.Error(err)
		}
	})
	c := &clinic{l, t, program}
	for _, m := range []string{"lb1", "server1"} {
		checks, status := c.examine(m)
		if status != 0 {
			t.Errorf("%s is well, and doctor fails: %+v", m, checks)
		}
	}
	set := func(path, value string) []string {
		return []string{"sh", "-c", "echo " + value + " > /proc/sys/net/ipv4/" + path}
	}
	words := strings.Fields
	for _, illness := range []struct {
		machine    string
		harm, heal []string
		check      string // prefix of the check's name
		want       doctor.Status
		detail     string
	}{
		{"server1", set("tcp_timestamps", "0"), set("tcp_timestamps", "1"), "tcp_timestamps", doctor.Fail, "no cookie"},
		{"server1", set("conf/eth0/rp_filter", "1"), set("conf/eth0/rp_filter", "0"), "rp_filter", doctor.Warn, "strict"},
		{"server1", words("ip link set eth0 mtu 1500"), words("ip link set eth0 mtu 1600"), "mtu eth0", doctor.Warn, "1520"},
		{"lb1", words("ip link set eth0 mtu 1500"), words("ip link set eth0 mtu 1600"), "way to", doctor.Warn, "leaves 1480 bytes"},
		{"lb1", words("ethtool -K eth0 tx on"), words("ethtool -K eth0 tx off"), "interface eth0", doctor.Fail, "checksum"},
		{"lb1", words("ip link set lo down"), words("ip link set lo up"), "health checks", doctor.Fail, "is down"},
		{"lb1", set("ip_forward", "1"), set("ip_forward", "0"), "forwarding", doctor.Warn, "back to the router"},
		{"lb1", words("ip route add unreachable 10.77.1.101/32"), words("ip route del unreachable 10.77.1.101/32"), "way to", doctor.Fail, "no route"},
	} {
		t.Run(illness.machine+" "+strings.Join(illness.harm, " "), func(t *testing.T) {
			c.t = t
			c.must(illness.machine, illness.harm...)
			defer c.must(illness.machine, illness.heal...)
			checks, _ := c.examine(illness.machine)
			c.expect(checks, illness.check, illness.want, illness.detail)
		})
	}
	t.Run("all that is wrong with lb1 at once", func(t *testing.T) {
		c.t = t
		harm, heal := "ip link set eth0 mtu 1500; ethtool -K eth0 tx on gro off; sysctl -qw net.ipv4.ip_forward=1", "ethtool -K eth0 tx off gro on; ip link set eth0 mtu 1600; sysctl -qw net.ipv4.ip_forward=0"
		c.must("lb1", "sh", "-ec", harm)
		defer c.must("lb1", "sh", "-ec", heal)
		checks, status := c.examine("lb1")
		c.expect(checks, "interface eth0", doctor.Fail, "checksum")
		c.expect(checks, "interface eth0", doctor.Warn, "without GRO")
		c.expect(checks, "way to", doctor.Warn, "leaves 1480 bytes")
		c.expect(checks, "forwarding", doctor.Warn, "back to the router")
		if status != 1 {
			t.Errorf("exit status %d", status)
		}
	})
	t.Run("server1 without a name", func(t *testing.T) {
		c.t = t
		out, err := c.in("server1", c.program, "doctor", "-f", c.ConfigPath())
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 || !strings.Contains(out, "say which entry it is with --name") {
			t.Errorf("nothing was checked, and doctor: %v: %s", err, out)
		}
	})
	t.Run("server1 with cgroup2 hidden", func(t *testing.T) {
		c.t = t
		// Listed still, and not to be opened.
		script := `d=$(mktemp -d); mount -t cgroup2 none $d
			for m in $(awk '$3 == "cgroup2" {print $2}' /proc/self/mounts); do mount -t tmpfs none $m; done
			"$@"; status=$?; umount $d $d; rmdir $d; exit $status`
		checks, _ := c.examine("server1", "unshare", "--mount", "sh", "-c", script, "sh")
		c.expect(checks, "cgroup2", doctor.Warn, "another file system over it")
	})
	t.Run("server1 route with tcp_usec_ts", func(t *testing.T) {
		c.t = t
		// By netlink: Debian 12's ip does not know the feature's name.
		namespace, err := c.Machine("server1")
		if err != nil {
			t.Fatal(err)
		}
		ns, err := netns.GetFromName(namespace)
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		handle, err := netlink.NewHandleAt(ns)
		if err != nil {
			t.Fatal(err)
		}
		defer handle.Close()
		route := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(198, 51, 100, 0).To4(), Mask: net.CIDRMask(24, 32)},
			Gw: net.IPv4(10, 77, 1, 1), Features: 1 << 4}
		if err := handle.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		checks, status := c.examine("server1")
		c.expect(checks, "tcp_usec_ts", doctor.Fail, "198.51.100.0/24")
		if status != 1 {
			t.Errorf("exit status %d", status)
		}
	})
	// Last, for nobody puts it back.
	t.Run("programs and VIPs that are gone while no daemon runs", func(t *testing.T) {
		c.t = t
		for _, m := range []string{"lb1", "server1"} {
			namespace, err := c.Machine(m)
			if err == nil {
				err = netspace.Kill(namespace)
			}
			if err != nil {
				t.Fatal(err)
			}
			links := filepath.Join(kernel.Dir(c.Name+"-"+m), "links")
			if m == "lb1" {
				c.must(m, "sh", "-ec", "ip link set eth0 down; ip link set eth0 name was0; ip link add eth0 type veth peer name peer0")
				checks, _ := c.examine(m)
				for _, kind := range []string{"xdp", "answers"} {
					c.expect(checks, "programs of", doctor.Fail, kind+"-eth0 is at interface number")
				}
			}
			l, err := link.LoadPinnedLink(filepath.Join(links, "xdp-eth0"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := l.Detach(); err != nil {
				t.Fatal(err)
			}
			others := map[string][]string{"lb1": {"answers-eth0", "checks-lo"}, "server1": {"tcx-eth0", "sockops"}}[m]
			for _, pin := range others {
				if err := os.Remove(filepath.Join(links, pin)); err != nil {
					t.Fatal(err)
				}
			}
			checks, _ := c.examine(m)
			for _, detail := range []string{"xdp-eth0 is detached", others[0] + " is not there", others[1] + " is not there"} {
				c.expect(checks, "programs of", doctor.Fail, detail)
			}
		}
		out, _ := c.in("lb1", c.program, "doctor", "-f", c.ConfigPath(), "--name", c.Name+"-lb1", "--pin-dir", kernel.Dir(c.Name+"-server1"))
		if !strings.Contains(out, "answers-eth0 is not there, checks-lo is not there") {
			t.Errorf("with another --pin-dir: %s", out)
		}
		c.must("server1", "ip", "address", "flush", "dev", "lo")
		checks, _ := c.examine("server1")
		c.expect(checks, "VIPs", doctor.Fail, "not on this machine")
	})
}

// expect looks for a check of that outcome with a remedy.
func (c *clinic) expect(checks []doctor.Check, name string, want doctor.Status, detail string) {
	c.t.Helper()
	for _, found := range checks {
		if strings.HasPrefix(found.Name, name) && found.Status == want && strings.Contains(found.Detail, detail) {
			if found.Remedy == "" {
				c.t.Errorf("no remedy: %+v", found)
			}
			return
		}
	}
	c.t.Errorf("no %s of %q with %q among %+v", want, name, detail, checks)
}
