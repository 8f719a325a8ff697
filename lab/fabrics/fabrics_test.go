package fabrics

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/lab/netspace"
)

// up builds a fabric without daemons for a test.
func up(t *testing.T, name string, of *topology.Fabric, o Options) *Fabric {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("fabrics of namespaces need root: run the tests with sudo")
	}
	o.Name = fmt.Sprint("m", name, os.Getpid())
	f, err := Up(t.Context(), of, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
		if left := netspace.List("fl-" + o.Name + "-"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	return f
}

// reaches tells whether a node gets an answer from an address, of which a
// refusal is one.
func reaches(t *testing.T, f *Fabric, node, address string) bool {
	t.Helper()
	err := f.In(node, func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(address, "9"), time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}

func TestLeafSpine(t *testing.T) {
	for _, o := range []Options{{}, {Nexthops: true}, {Wires: true}} {
		t.Run(fmt.Sprintf("wires %v nexthops %v", o.Wires, o.Nexthops), func(t *testing.T) {
			of, err := topology.LeafSpine(2, 2, 1)
			if err != nil {
				t.Fatal(err)
			}
			// A second family for the ends.
			for i := range of.Nodes {
				of.Nodes[i].Addresses = append(of.Nodes[i].Addresses, numbered6(0x92, i))
			}
			f := up(t, "leaf", of, o)
			to := f.Topology().Nodes[f.Node("host-1")].Addresses
			both := func(want bool) {
				t.Helper()
				for _, a := range to {
					if !netspace.WaitFor(10*time.Second, func() bool { return reaches(t, f, "host-0", a.String()) == want }) {
						t.Errorf("reaches %s: %v, want %v", a, !want, want)
					}
				}
			}
			both(true)
			ways := func(want int) {
				t.Helper()
				for _, a := range to {
					if got := f.Routes("leaf-0", a); len(got) != want {
						t.Errorf("ways to %s by links %v, want %d", a, got, want)
					}
				}
			}
			ways(2)
			first, second := f.Link("leaf-0", "spine-0", 0), f.Link("spine-1", "leaf-1", 0)
			if err := f.Cut(first); err != nil {
				t.Fatal(err)
			}
			if err := f.Reroute(); err != nil {
				t.Fatal(err)
			}
			ways(1)
			both(true)
			if err := f.Cut(second); err != nil {
				t.Fatal(err)
			}
			both(false)
			if err := f.Restore(first); err != nil {
				t.Fatal(err)
			}
			ways(1)
			both(true)
			if err := f.Restore(second); err != nil {
				t.Fatal(err)
			}
			ways(2)
			both(true)
		})
	}
}

func TestLose(t *testing.T) {
	of, err := topology.LeafSpine(2, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	of.Links[2].Capacity = 1e9
	f := up(t, "lose", of, Options{})
	if err := f.Lose(0, 0.5); err == nil || !strings.Contains(err.Error(), "no wire") {
		t.Errorf("losing on what is no wire: %v", err)
	}
	to := f.Topology().Nodes[f.Node("host-1")].Addresses[0].String()
	if !netspace.WaitFor(10*time.Second, func() bool { return reaches(t, f, "host-0", to) }) {
		t.Fatal("no way")
	}
	for _, share := range []float64{1, 0.5, 0} {
		if err := f.Lose(2, share); err != nil {
			t.Fatal(err)
		}
		const sent, tolerance = 200, 50 // seven standard deviations; more have no room in a socket
		got := arrive(t, f, to, sent)
		if off := math.Abs(float64(got) - (1-share)*sent); off > tolerance || share != 0.5 && off > 0 {
			t.Errorf("loss %g: %d of %d packets arrive", share, got, sent)
		}
	}
}

// arrive counts how many of n datagrams from host-0 come to host-1.
func arrive(t *testing.T, f *Fabric, to string, n int) (got int) {
	t.Helper()
	var from, at net.PacketConn
	listen := func(c *net.PacketConn) func() error {
		return func() (err error) {
			*c, err = net.ListenPacket("udp4", ":0")
			return err
		}
	}
	if err := errors.Join(f.In("host-0", listen(&from)), f.In("host-1", listen(&at))); err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	defer at.Close()
	target := &net.UDPAddr{IP: net.ParseIP(to), Port: at.LocalAddr().(*net.UDPAddr).Port}
	buf := make([]byte, 16)
	for range n {
		if _, err := from.WriteTo(buf, target); err != nil {
			t.Fatal(err)
		}
	}
	// Whatever is not lost is there or on its way through one machine.
	for {
		_ = at.SetReadDeadline(time.Now().Add(time.Second))
		if _, _, err := at.ReadFrom(buf); err != nil {
			return got
		}
		got++
	}
}

// TestDotted: what daemons whose names have dots pinned goes with the fabric.
func TestDotted(t *testing.T) {
	of, err := topology.LeafSpine(1, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	of.Nodes[len(of.Nodes)-1].Name = "spine.0"
	f := up(t, "dot", of, Options{})
	pins := kernel.Dir(f.Topology().Nodes[len(of.Nodes)-1].Name)
	if err := os.MkdirAll(pins, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Down(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(pins); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", pins, err)
	}
}
