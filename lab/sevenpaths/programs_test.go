package sevenpaths

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/mptcp"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/fabrics/fabricstest"
	"github.com/fairlead/fairlead/lab/netspace"
)

// iperf3Port is iperf3's own.
const iperf3Port = "5201"

// serveIperf3 runs `iperf3 --server` at the server until one test is done;
// before is what runs it.
func serveIperf3(t *testing.T, d *traffic, name string, before ...string) *fabrics.Process {
	t.Helper()
	p, err := d.fabric.Spawn("server", name, append(before, "iperf3", "--server", "--one-off", "--forceflush", "--port", iperf3Port)...)
	if err != nil {
		t.Fatal(err)
	}
	if !netspace.WaitFor(readyWait, func() bool { return p.Ended() || strings.Contains(p.Log(), "listening on") }) || p.Ended() {
		t.Fatalf("iperf3 does not listen:\n%s", p.Log())
	}
	return p
}

// needs ends the test unless the program is there.
func needs(t *testing.T, program, remedy string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%v; %s", err, remedy)
	}
}

// TestIperf3: iperf3 through the routers, by TCP of both families, and its data
// by one of the links.
func TestIperf3(t *testing.T) {
	needs(t, "iperf3", "make deps installs it")
	d := sevenTestbed(t, "iperf")
	for family, six := range map[string]bool{"IPv4": false, "IPv6": true} {
		serveIperf3(t, d, "iperf3-"+family)
		before, err := d.passed()
		if err != nil {
			t.Fatal(err)
		}
		// The client says that the test is over when all is sent: the last of it
		// may still be in queues.
		const sent, least = 2 << 20, 1 << 20
		out, err := fabricstest.Run(t.Context(), d.fabric, "client", "iperf3", "--client", d.server(six).String(), "--port", iperf3Port, "--bytes", "2M", "--json")
		if err != nil {
			t.Fatalf("%s: %v", family, err)
		}
		var result struct {
			End struct {
				Received struct {
					Bytes int64
				} `json:"sum_received"`
			}
		}
		if err := json.Unmarshal([]byte(out), &result); err != nil || result.End.Received.Bytes < least {
			t.Errorf("%s: %d bytes received of %d; %v:\n%s", family, result.End.Received.Bytes, sent, err, out)
		}
		after, err := d.passed()
		if err != nil {
			t.Fatal(err)
		}
		carried := 0
		for i := range after {
			if after[i]-before[i] >= least/8 {
				carried++
			}
		}
		if carried != 1 {
			t.Errorf("%s: %d links carried the connection, want 1: from %d to %d bytes", family, carried, before, after)
		}
	}
}

// TestMptcpize: a program that knows nothing of Multipath TCP, started by
// mptcpize, gets a subflow on each link, and its data pass on all.
func TestMptcpize(t *testing.T) {
	needs(t, "iperf3", "make deps installs it")
	if _, err := exec.LookPath("mptcpize"); err != nil {
		t.Skipf("%v; apt-get install mptcpize has it (Debian 12, Ubuntu 22.04 and later)", err)
	}
	d := sevenTestbed(t, "ize")
	if err := d.manage(point{subflows: Paths}); err != nil {
		t.Fatal(err)
	}
	server := serveIperf3(t, d, "mptcpize-server", "mptcpize", "run")
	client, err := d.fabric.Spawn("client", "mptcpize-client", "mptcpize", "run", "iperf3", "--client", d.server(false).String(), "--port", iperf3Port, "--time", "600", "--forceflush")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Stop()
	logs := func() string {
		return "client:\n" + client.Log() + "server:\n" + server.Log() + "fairlead mptcp:\n" + d.manager.Log()
	}
	// iperf3 has a connection for what it says and one for data.
	var list []mptcp.Listed
	all := func() bool {
		list = listed(t, d)
		return slices.ContainsFunc(list, func(c mptcp.Listed) bool {
			used := open(c)
			return len(used) == Paths && len(slices.Compact(used)) == Paths
		})
	}
	if !netspace.WaitFor(time.Minute, func() bool { return client.Ended() || all() }) || client.Ended() {
		t.Fatalf("connections have %+v\n%s", list, logs())
	}
	before, err := d.passed()
	if err != nil {
		t.Fatal(err)
	}
	var after []uint64
	everywhere := func() bool {
		if after, err = d.passed(); err != nil {
			t.Fatal(err)
		}
		for i := range after {
			if after[i] < before[i]+64<<10 {
				return false
			}
		}
		return true
	}
	if !netspace.WaitFor(time.Minute, everywhere) {
		t.Errorf("bytes on the links: %d, then %d\n%s", before, after, logs())
	}
}
