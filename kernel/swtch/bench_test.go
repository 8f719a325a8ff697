package swtch

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
)

// BenchmarkRepoint points all 1,024 nexthops of one family to other servers
// (Faild section 6.2: p95 of 119 to 134 ms on switches' own hardware): the
// neighbours alone, and through Apply, with the table's computation, the
// bridge's entries and the difference.
func BenchmarkRepoint(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("network namespaces need root")
	}
	const nexthops = 1024
	ns, err := hosttest.NewNamespace()
	if err != nil {
		b.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Do(exec.Command("sh", "-ec", "ip link set lo up; ip link add br0 type bridge forward_delay 0; ip link set br0 up; ip link add port0 type veth peer name far; ip link set port0 master br0 up; ip link set far up; until bridge link show dev port0 | grep -q state.forwarding; do :; done; until ip -o link show br0 | grep -q state.UP; do :; done").Run); err != nil {
		b.Fatal(err)
	}
	b.Run("neighbours", func(b *testing.B) {
		var took []time.Duration
		err := ns.Do(func() (err error) {
			took, err = MeasureRepoint("br0", nexthops, b.N)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		percentiles(b, took)
	})
	b.Run("apply", func(b *testing.B) {
		const servers = 16
		c := &clock{time.Unix(1_800_000_000, 0)}
		d := desired(nexthops, servers)
		d.VIPs, d.Datagrams = []netip.Addr{vip4}, false
		ports := map[string]string{}
		for _, s := range d.Servers {
			ports[s.Name] = "port0"
		}
		var s *Switch
		err := ns.Do(func() (err error) {
			s, err = Open(Options{Bridge: "br0", Ports: ports, Now: c.Now})
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		if err := s.Apply(d); err != nil {
			b.Fatal(err)
		}
		var whole, kernel []time.Duration
		for b.Loop() {
			// Every bucket goes to the next server.
			c.add(time.Second)
			var moves []buckets.Move
			for i, at := range d.Table.Current {
				moves = append(moves, buckets.Move{Bucket: uint32(i), To: (at + 1) % servers})
			}
			d.Table, _ = d.Table.Apply(moves, buckets.Options{Now: seconds(c.now), ChainTime: 1})
			before := s.Status().Repointed
			start := time.Now()
			if err := s.Apply(d); err != nil {
				b.Fatal(err)
			}
			whole = append(whole, time.Since(start))
			kernel = append(kernel, s.Status().LastChange)
			if n := s.Status().Repointed - before; n != nexthops {
				b.Fatalf("%d nexthops repointed", n)
			}
		}
		percentiles(b, kernel)
		slices.Sort(whole)
		b.ReportMetric(float64(percentile(whole, 50).Microseconds())/1000, "whole-p50-ms")
		if err := s.Remove(); err != nil {
			b.Fatal(err)
		}
	})
}

func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for _, p := range []float64{50, 95} {
		b.ReportMetric(float64(percentile(took, p).Microseconds())/1000, fmt.Sprintf("p%.0f-ms", p))
	}
	b.ReportMetric(float64(took[0].Microseconds())/1000, "best-ms")
}

// percentile of durations that are sorted ascending; p from 0 to 100.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p/100*float64(len(sorted))))]
}
