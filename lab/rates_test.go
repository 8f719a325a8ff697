package lab

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netspace"
)

// Of real clients: who opens too many connections gets as many as are allowed, who sends
// too much on one is slowed down, and neither touches a connection within its limits.
func TestRates(t *testing.T) {
	t.Parallel()
	const opens, packets = 20, 200
	vip := VIP{Name: "web", Address: vipAddress4(1), Port: httpPort, Protocol: "tcp", Scheme: "cheetah-stateful", Policy: "rr", Health: "http",
		Rates: fmt.Sprintf("{connection: {packets: %d}, source: {prefix_v4: 32, connections: %d}}", packets, opens)}
	o := Options{Name: fmt.Sprint("rates", os.Getpid()), Servers: 2, LBs: 1, Program: testProgram(t), Scheme: vip.Scheme, VIPs: []VIP{vip}}
	l, err := Up(t.Context(), o, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Down(o.Name) })
	quiet, loud := l.dialMoved(t), l.dialMoved(t)
	slow := make(chan time.Duration)
	go func() { // within its limits, while others are not
		longest := time.Duration(0)
		for range 100 {
			began := time.Now()
			if quiet.ask("/", 1) == "" {
				break
			}
			took := time.Since(began)
			longest = max(longest, took)
			time.Sleep(max(0, 30*time.Millisecond-took)) // its pace
		}
		slow <- longest
	}()
	began := time.Now()
	opened := 0
	for range 15 * opens {
		var c net.Conn
		_ = netspace.In(l.namespace("client"), func() (err error) {
			// Shorter than a second, after which a SYN is sent again.
			c, err = (&net.Dialer{Timeout: 20 * time.Millisecond}).DialContext(t.Context(), "tcp4", netip.AddrPortFrom(vip.Address, httpPort).String())
			return err
		})
		if c != nil {
			opened++
			defer c.Close()
		}
	}
	took := time.Since(began)
	if most := opens + int(opens*took.Seconds()) + 1; opened < opens/2 || opened > most {
		t.Errorf("%d connections opened in %v, at most %d should", opened, took, most)
	}
	began = time.Now()
	loud.ask("/", packets*5/4)
	if took := time.Since(began); took < 200*time.Millisecond { // one retransmission
		t.Errorf("%d questions on one connection took %v", packets*5/4, took)
	} else {
		t.Logf("%d questions on one connection took %v", packets*5/4, took)
	}
	if longest := <-slow; longest > 150*time.Millisecond {
		t.Errorf("a connection within its limits waited for %v", longest)
	}
	out, said, err := l.Command(t.Context(), "lb1", nil, "status", "-f", l.ConfigPath(), "-o", "json")
	if err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var status struct {
		Daemons []struct {
			Reasons []struct {
				Name    string
				Packets int
			}
			Vips []struct {
				Rates    string
				Counters struct{ Rated int }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	dropped, rated, rates := map[string]int{}, 0, ""
	for _, d := range status.Daemons {
		for _, r := range d.Reasons {
			dropped[r.Name] += r.Packets
		}
		for _, v := range d.Vips {
			rated, rates = rated+v.Counters.Rated, max(rates, v.Rates)
		}
	}
	if dropped["drop_rate_new"] == 0 || dropped["drop_rate_connection"] == 0 || rated != dropped["drop_rate_new"]+dropped["drop_rate_connection"] || rates == "" {
		t.Errorf("status has limits %q, %d dropped, and reasons %v", rates, rated, dropped)
	}
	t.Logf("%d opened in %v; %s; %d dropped", opened, took, rates, rated)
}
