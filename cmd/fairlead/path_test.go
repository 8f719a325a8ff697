package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/topology"
)

const pathFabric = `selector: {key: 000102030405060708090a0b0c0d0e0f, radix: 4}
paths: {api: "unix:/nowhere/paths.sock"}
routers: [{name: leaf1}, {name: leaf2}, {name: spine1}, {name: spine2}]
hosts: [{name: h1, addresses: [10.1.1.2]}, {name: h2, addresses: [10.1.2.2, "2001:db8::2"]}]
links:
  - {between: [h1, leaf1], devices: [eth0, eth1], capacity: 1Gbit}
  - {between: [h2, leaf2]}
  - {between: [leaf1, spine1], ports: [0, 0]}
  - {between: [leaf1, spine2], ports: [1, 0]}
  - {between: [leaf2, spine1], ports: [0, 1]}
  - {between: [leaf2, spine2], ports: [1, 1]}
`

// runPath runs `fairlead path` on a file of its own.
func runPath(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(file, []byte(pathFabric), 0o600); err != nil {
		t.Fatal(err)
	}
	return clitest.Run(newRootCommand(), append([]string{"path", args[0], "-f", file}, args[1:]...)...)
}

func TestPathCommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "h1", "h2"}, "PATH  WAY                       CHOICES\n0     h1 leaf1 spine1 leaf2 h2  leaf1:0\n1     h1 leaf1 spine2 leaf2 h2  leaf1:1\n"},
		{[]string{"list", "h1", "h2", "--first", "1", "--limit", "1"}, "1 of 2 paths; --first and --limit show others"},
		{[]string{"find", "h1", "h2", "--via", "leaf1", "--first", "1"}, "1     h1 leaf1 spine2 leaf2 h2"},
		{[]string{"find", "h1", "10.1.2.2", "--avoid", "leaf1:0-spine1:0"}, "h1 leaf1 spine2 leaf2 h2"},
		{[]string{"of", "tcp", "10.1.1.2:40001", ">", "10.1.2.2:443"}, "port "},
		{[]string{"of", "udp 10.1.1.2 > 10.1.2.2 ttl=9"}, "(ttl 9)"},
	} {
		status, out, complaints := runPath(t, c.args...)
		if status != cli.ExitDone || !strings.Contains(out, c.want) || complaints != "" {
			t.Errorf("%v: %d\n%s%s", c.args, status, out, complaints)
		}
	}
}

// TestPathPorts: what `ports` prints, `of` leads over that path.
func TestPathPorts(t *testing.T) {
	status, out, complaints := runPath(t, "ports", "h1", "h2", "--dst-port", "443", "--count", "2", "-o", "json")
	var answer struct {
		Paths []struct {
			Path struct {
				Number int
				Hops   []struct{ Link string }
			}
			Flows []struct {
				Src, Dst string
				SrcPort  int `json:"src_port"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); status != cli.ExitDone || err != nil || len(answer.Paths) != 2 {
		t.Fatalf("%d %v %s%s", status, err, out, complaints)
	}
	for _, p := range answer.Paths {
		if len(p.Flows) != 2 || p.Flows[0] == p.Flows[1] {
			t.Errorf("flows: %+v", p.Flows)
		}
		for _, f := range p.Flows {
			flow := "tcp " + endText(f.Src, uint32(f.SrcPort)) + " > " + endText(f.Dst, 443)
			status, out, _ := runPath(t, "of", flow)
			if status != cli.ExitDone || !strings.Contains(out, p.Path.Hops[1].Link+" ") || !strings.Contains(out, "selected: port ") {
				t.Errorf("%s: %d\n%s, want %s", flow, status, out, p.Path.Hops[1].Link)
			}
			var of struct{ Path struct{ Number int } }
			_, out, _ = runPath(t, "of", flow, "-o", "json")
			if err := json.Unmarshal([]byte(out), &of); err != nil || of.Path.Number != p.Path.Number {
				t.Errorf("%s: path %d, want %d: %v", flow, of.Path.Number, p.Path.Number, err)
			}
		}
	}
}

// TestPathRefused: usage is 2, what cannot be is 1, with one line.
func TestPathRefused(t *testing.T) {
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{cli.ExitUsage, "give --via or --avoid", []string{"find", "h1", "h2"}},
		{cli.ExitUsage, "accepts 2 arg(s)", []string{"list", "h1"}},
		{cli.ExitUsage, `--output "xml"`, []string{"list", "h1", "h2", "-o", "xml"}},
		{cli.ExitUsage, "--src-ports 9: must be two ports", []string{"ports", "h1", "h2", "--src-ports", "9"}},
		{cli.ExitUsage, "--src-ports 60000-50000: the first is above the last; write 50000-60000", []string{"ports", "h1", "h2", "--src-ports", "60000-50000"}},
		{cli.ExitUsage, "--dst-port 70000: must be 65535 at most", []string{"ports", "h1", "h2", "--dst-port", "70000"}},
		{cli.ExitFailed, "no address of IPv6 is known of h1 there", []string{"ports", "h1", "h2", "--ipv6"}},
		{cli.ExitUsage, "no SOURCE > DESTINATION", []string{"of", "tcp 10.1.1.2"}},
		{cli.ExitUsage, `"ttl=0" is neither`, []string{"of", "10.1.1.2 > 10.1.2.2 ttl=0"}},
		{cli.ExitUsage, `"h1" is no address`, []string{"of", "h1 > 10.1.2.2"}},
		{cli.ExitUsage, `--service http://192.0.2.1:80: plain http is for loopback addresses`, []string{"list", "h1", "h2", "--service", "http://192.0.2.1:80"}},
		{cli.ExitUsage, `ID "x": must be a number`, []string{"release", "x"}},
		{cli.ExitUsage, "--lease 1.5s: must be whole seconds", []string{"schedule", "h1", "h2", "--lease", "1500ms"}},
		{cli.ExitUsage, "--again 1 names the flow, and with it both ends: leave out h1 h2", []string{"schedule", "h1", "h2", "--again", "1"}},
		{cli.ExitUsage, `"here=127.0.0.1": is this host`, []string{"learn", "--from", "me", "here=127.0.0.1"}},
		{cli.ExitUsage, `"me=192.0.2.1": is this host`, []string{"learn", "--from", "me", "me=192.0.2.1"}},
		{cli.ExitUsage, `"h9=foo": "foo" is no address; write NAME=ADDRESS`, []string{"learn", "h9=foo"}},
		{cli.ExitUsage, "--timeout 0s: must be more than 0", []string{"learn", "h2", "--timeout", "0s"}},
		{cli.ExitUsage, "--port 0: must be 1 to 65535", []string{"answer", "--port", "0"}},
		{cli.ExitUsage, `RATE "fast": not a rate`, []string{"report", "h1-leaf1", "h1", "fast"}},
		{cli.ExitUsage, "--measure 1ms: must be 100ms or more", []string{"serve", "--measure", "1ms"}},
		{cli.ExitFailed, "leaf2 is a router, which answers no probes", []string{"probe", "h1", "leaf2"}},
		{cli.ExitFailed, "to h3: not in the fabric", []string{"list", "h1", "h3"}},
		{cli.ExitFailed, "the path service does not answer: dial unix /nowhere/paths.sock", []string{"schedule", "h1", "h2"}},
		{cli.ExitFailed, "leaf2: the file names no device and capacity", []string{"measure", "leaf2"}},
	} {
		status, out, complaints := runPath(t, c.args...)

		if lines := strings.Count(complaints, "\n"); status != c.status || !strings.Contains(complaints, c.want) || out != "" || lines > 2 || status == cli.ExitFailed && lines != 1 {
			t.Errorf("%v: %d %s%s, want %d %s", c.args, status, out, complaints, c.status, c.want)
		}
	}
}

// TestProbeSilent: where nothing is answered the key may be another, unless
// somebody said why, or one path is answered.
func TestProbeSilent(t *testing.T) {
	lost := probe.State{Verdict: probe.Lost, Sent: 5, Reason: "probes have no answer; leaf1 does not send it to spine1"}
	refused, partly := lost, lost
	refused.Reason = "h2 has no answerer on UDP port 6081; run there: fairlead path answer"
	partly.Answered = 1
	for _, c := range []struct {
		states []probe.State
		want   bool
	}{{nil, false}, {[]probe.State{lost, lost}, true}, {[]probe.State{lost, partly}, false}, {[]probe.State{refused, refused}, false},
		{[]probe.State{lost, {Verdict: probe.Good, Sent: 5, Answered: 5}}, false}} {
		if got := (&probeView{states: c.states}).silent(); got != c.want {
			t.Errorf("%+v: %v", c.states, got)
		}
	}
}

// TestLearnDraft: a file of nodes that have no links yet is taken.
func TestLearnDraft(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	draft, _, _ := strings.Cut(pathFabric, "links:")
	if err := os.WriteFile(file, []byte(draft), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, said := clitest.Run(newRootCommand(), "path", "learn", "-f", file, "--from", "h1", "h1")
	if want := `"h1": is this host`; status != cli.ExitUsage || !strings.Contains(said, want) {
		t.Errorf("%d %s, want %s", status, said, want)
	}
}

// TestLearnWrites: what no link was learned of is left out and told, and the
// selector's key is not told where a file has it.
func TestLearnWrites(t *testing.T) {
	f, err := topology.Parse("f", []byte(pathFabric))
	if err != nil {
		t.Fatal(err)
	}
	f.Nodes = slices.Insert(f.Nodes, 1, topology.Node{Name: "idle", TTL: 64})
	for i := range f.Links {
		for side := range f.Links[i].Ends {
			if e := &f.Links[i].Ends[side]; e.Node >= 1 {
				e.Node++
			}
		}
	}
	if left := nameless(f); !slices.Equal(left, []string{"idle"}) {
		t.Errorf("left out: %v", left)
	}
	for _, keyFile := range []string{"", "fabric.key"} {
		f.KeyFile = keyFile
		if err := placeKey(f, "/etc/fairlead/fabric.yaml"); err != nil {
			t.Fatal(err)
		}
		var out, said bytes.Buffer
		cmd := newPathLearnCommand()
		cmd.SetOut(&out)
		cmd.SetErr(&said)
		if err := writeFabric(cmd, f); err != nil {
			t.Fatal(err)
		}
		inFile := strings.Contains(out.String(), "000102030405060708090a0b0c0d0e0f")
		if inFile != (keyFile == "") || strings.Contains(said.String(), "chmod 600") != inFile ||
			keyFile != "" && !strings.Contains(out.String(), "key_file: /etc/fairlead/fabric.key") {
			t.Errorf("%q: %s%s", keyFile, out.String(), said.String())
		}
	}
}

// TestLearnFrom: this machine is the host of the file that has its address.
func TestLearnFrom(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if name, err := thisHost(&topology.Fabric{}); err != nil || name != machine {
		t.Errorf("%s, %v, want %s", name, err, machine)
	}
	for _, a := range own {
		prefix := netip.MustParsePrefix(a.String())
		if prefix.Addr().IsLoopback() {
			continue
		}
		f := &topology.Fabric{Nodes: []topology.Node{{Name: "h7", Host: true, Addresses: []netip.Addr{prefix.Addr()}}}}
		if name, err := thisHost(f); err != nil || name != "h7" {
			t.Errorf("with %s: %s, %v", prefix, name, err)
		}
	}
}

// TestTwiceText: each router that may be another is named with what it may be.
func TestTwiceText(t *testing.T) {
	got := twiceText([]probe.Twice{{New: "x", Old: []string{"leaf1", "leaf2"}}, {New: "y"}})
	if want := "x may be leaf1 or leaf2, y may be any of them"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestImportRefused: the file that is wrong is named, with the remedy.
func TestImportRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "leaf1.json")
	if err := os.WriteFile(empty, []byte(`{"lldp": [{"interface": []}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"/nope.json": "/nope.json: cannot be read: no such file or directory; write there what `lldpcli -f json0 show neighbors` prints",
		"/dev":       "/dev: is a folder, must be a regular file",
		empty:        empty + ": no file names a neighbour",
	} {
		if status, _, said := clitest.Run(newRootCommand(), "path", "import", file); status != cli.ExitFailed || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s, want %s", file, status, said, want)
		}
	}
}

// TestProbePartly: a path that loses some of its probes is good, and says so.
func TestProbePartly(t *testing.T) {
	for _, c := range []struct {
		verdict        probe.Verdict
		sent, answered uint64
		want           string
	}{{probe.Good, 20, 20, ""}, {probe.Good, 20, 19, ""}, {probe.Good, 20, 18, " (loses some: 10 % of probes)"}, {probe.Good, 1000, 998, ""}, {probe.Lost, 20, 10, ""}} {
		if got := partly(&probe.State{Verdict: c.verdict, Sent: c.sent, Answered: c.answered}); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if a, b, c := rateText(0), rateText(2e6), rateText(probe.Measurable); a != "-" || b != "2Mbit" || c != ">400Mbit" {
		t.Error(a, b, c)
	}
}

func TestFlowText(t *testing.T) {
	for _, text := range []string{"tcp 10.1.1.2:40001 > 10.1.2.2:443", "udp [2001:db8::2]:5 > [2001:db8::3]:6 label=0x12345", "47 2001:db8::2 > 2001:db8::3"} {
		q, err := parseFlow(text)
		if err != nil || flowText(q.Flow) != text {
			t.Errorf("%s: %v, %v", text, q, err)
		}
	}
	for i, text := 0, "udp [2001:db8::2]:5 > [2001:db8::3]:6 label=0x12345 ttl=7"; i < len(text); i++ {
		if q, err := parseFlow(text[:i]); (q == nil) == (err == nil) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v", text[:i], q, err)
		}
	}
}

// TestMeter: rates are of what was sent between two readings; a counter that
// begins again is no rate.
func TestMeter(t *testing.T) {
	f, err := topology.Parse("f", []byte(pathFabric))
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMeter(f, "h1")
	if err != nil {
		t.Fatal(err)
	}
	var sent uint64
	m.counted = func(device string) (uint64, error) { return sent, nil }
	read := func(bytes uint64, at int64) []*fairleadv1.MeasuredLink {
		t.Helper()
		sent = bytes
		q, err := m.read(time.Unix(at, 0))
		if err != nil {
			t.Fatal(err)
		}
		return q.Links
	}
	if got := read(1e9, 100); len(got) != 0 {
		t.Errorf("a first reading: %v", got)
	}
	if got := read(1e9+250e6, 102); len(got) != 1 || got[0].Link != "h1-leaf1" || got[0].From != "h1" || got[0].BitsPerSecond != 1e9 {
		t.Errorf("250 MB in 2 s: %v", got)
	}
	if got := read(5, 104); len(got) != 0 {
		t.Errorf("a device that is new: %v", got)
	}
}

// TestMeterGoesOn: a service that is away for a while is told of once; one that
// was never there ends the command.
func TestMeterGoesOn(t *testing.T) {
	f, err := topology.Parse("f", []byte(pathFabric))
	if err != nil {
		t.Fatal(err)
	}
	run := func(answers ...error) (string, error) {
		m, err := newMeter(f, "h1")
		if err != nil {
			t.Fatal(err)
		}
		var sent uint64
		m.counted = func(string) (uint64, error) { sent += 1000; return sent, nil }
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		report := func(*fairleadv1.ReportLoadRequest) error {
			answer := answers[0]
			if answers = answers[1:]; len(answers) == 0 {
				cancel()
			}
			return answer
		}
		var trouble bytes.Buffer
		err = m.run(ctx, time.Millisecond, report, &trouble)
		return trouble.String(), err
	}
	away := errors.New("the path service does not answer")
	if told, err := run(nil, away, away, nil, away, nil); err != nil || strings.Count(told, "does not answer\n") != 2 {
		t.Errorf("%q, %v", told, err)
	}
	if _, err := run(away, nil); !errors.Is(err, away) {
		t.Error(err)
	}
}
