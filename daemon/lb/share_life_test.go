package lb_test

import (
	"net/http"
	"os/exec"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/lab"
)

// What one balancer tracks the other knows: connections of clients without
// timestamps, opened while a server drains, go on when it takes connections
// again and the router moves all of them to the other balancer; and once more
// to a balancer that has just been started with an empty table.
func TestShareLife(t *testing.T) {
	r := newRig(t, func(o *lab.Options) { o.NoTimestamps = true })
	talkers := r.talk(10)
	r.flows("at the start", talkers)
	server2 := `{"vip": "web", "server": "` + r.Name + `-server2"}`
	r.curl("DrainServer", server2, http.StatusOK)
	talkers = append(talkers, r.talk(40)...)
	r.flows("server2 drains", talkers)

	told := func(from, to string) (n uint64, all bool) {
		n = web(r.status(from)).Counters.Tracked
		return n, n > 0 && r.status(from).Sharing.Sent >= n && r.status(to).Sharing.Received >= n
	}
	var one, two uint64
	r.eventually("both balancers track, and told each other", func() bool {
		var toldOne, toldTwo bool
		one, toldOne = told("lb1", "lb2")
		two, toldTwo = told("lb2", "lb1")
		return toldOne && toldTwo
	})
	t.Logf("of %d connections lb1 tracks %d, lb2 %d", len(talkers), one, two)

	r.route("lb1")
	r.curl("UndrainServer", server2, http.StatusOK)
	r.flows("server2 is back, and lb1 has all connections", talkers)

	// lb2 forgets everything: it reads lb1's table when it starts.
	r.must(r.KillDaemon("lb2"))
	r.eventually("lb2's programs are taken out", func() bool { // the kernel lets go of a killed process by and by
		return exec.Command(r.program, "unload", r.Name+"-lb2").Run() == nil
	})
	r.must(r.StartDaemon(t.Context(), "lb2"))
	r.eventually("lb2 has read lb1's table", func() bool {
		for _, p := range r.status("lb2").Sharing.Peers {
			if p.Name == r.Name+"-lb1" {
				return !p.Pending && p.Pulled >= one+two
			}
		}
		return false
	})
	r.route("lb2")
	r.flows("the new lb2 has all connections", talkers)
}

// web is the VIP of the talkers.
func web(s *fairleadv1.GetStatusResponse) *fairleadv1.VIP {
	for _, v := range s.Vips {
		if v.Name == "web" {
			return v
		}
	}
	return &fairleadv1.VIP{Counters: &fairleadv1.Counters{}}
}

// route makes the router send everything to one balancer.
func (r *rig) route(lb string) {
	r.t.Helper()
	namespace, err := r.Machine("router")
	r.must(err)
	address := map[string]string{"lb1": "10.77.1.11", "lb2": "10.77.1.12"}[lb]
	if out, err := exec.Command("nsenter", "--net=/run/netns/"+namespace, "ip", "route", "replace", "10.77.7.0/24", "via", address).CombinedOutput(); err != nil {
		r.t.Fatalf("route by %s: %v: %s", lb, err, out)
	}
}
