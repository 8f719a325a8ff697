package fabricstest

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
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/netspace"
)

func TestLose(t *testing.T) {
	of, err := topology.LeafSpine(2, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	of.Links[2].Capacity = 1e9
	name := fmt.Sprint("mlose", os.Getpid())
	f, err := fabrics.Up(t.Context(), of, fabrics.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
		if left := netspace.List("fl-" + name + "-"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	if err := Lose(f, 0, 0.5); err == nil || !strings.Contains(err.Error(), "no wire") {
		t.Errorf("losing on what is no wire: %v", err)
	}
	to := f.Topology().Nodes[f.Node("host-1")].Addresses[0].String()
	if !netspace.WaitFor(10*time.Second, func() bool { return reaches(f, to) }) {
		t.Fatal("no way")
	}
	for _, share := range []float64{1, 0.5, 0} {
		if err := Lose(f, 2, share); err != nil {
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
func arrive(t *testing.T, f *fabrics.Fabric, to string, n int) (got int) {
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

// reaches tells whether host-0 gets an answer from an address, if only a refusal.
func reaches(f *fabrics.Fabric, to string) bool {
	err := f.In("host-0", func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(to, "9"), time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}
