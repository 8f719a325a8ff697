package fabrics

import (
	"errors"
	"fmt"
	"net"
	"os"
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
