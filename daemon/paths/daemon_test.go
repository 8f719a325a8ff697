package paths

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/topology"
)

// pathsFile is a leaf-spine fabric; h1 to h2 has two paths.
const pathsFile = `selector: {key: 000102030405060708090a0b0c0d0e0f, radix: 8}
paths: {api: "unix:SOCKET"}
routers: [{name: leaf1, api: "unix:SOCKET.leaf1"}, {name: leaf2}, {name: spine1}, {name: spine2}]
hosts: [{name: h1, addresses: [10.1.1.2]}, {name: h2, addresses: [10.1.2.2, "2001:db8::2"]}]
links:
  - {between: [h1, leaf1], capacity: 1Gbit}
  - {between: [h2, leaf2], capacity: 1Gbit}
  - {between: [leaf1, spine1], ports: [0, 0], addresses: [10.9.0.1, 10.9.0.2], capacity: 1Gbit}
  - {between: [leaf1, spine2], ports: [1, 0], addresses: [10.9.0.3, 10.9.0.4], capacity: 1Gbit}
  - {between: [leaf2, spine1], ports: [0, 1]}
  - {between: [leaf2, spine2], ports: [1, 1]}
`

// pathsRun is a running service.
type pathsRun struct {
	fairleadv1connect.PathsClient
	folder, file, http string
	stop               func() error
}

// serveFile writes the file for a service in folder.
func serveFile(t *testing.T, folder, text string) (file string) {
	t.Helper()
	file = filepath.Join(folder, "fabric.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "SOCKET", filepath.Join(folder, "s"))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// servePaths runs the service until the test ends or stop is called.
func servePaths(t *testing.T, folder string) *pathsRun {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &pathsRun{folder: folder, file: filepath.Join(folder, "fabric.yaml"), http: freePort(t)}
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{File: r.file, StateDir: filepath.Join(folder, "state"), HTTP: r.http,
			Measure: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	}()
	stopped := false
	r.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if r.PathsClient, err = api.DialPaths("unix:"+filepath.Join(folder, "s"), config.TLS{}); err != nil {
		t.Fatal(err)
	}
	pathsWait(t, func() error {
		select {
		case err := <-done:
			t.Fatal("it ended: ", err)
		default:
		}
		_, err := r.GetFabric(t.Context(), connect.NewRequest(&fairleadv1.GetFabricRequest{}))
		return err
	})
	return r
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// pathsWait waits until what it is given succeeds.
func pathsWait(t *testing.T, ready func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = ready(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

func (r *pathsRun) place(t *testing.T, q *fairleadv1.PlaceFlowRequest) *fairleadv1.PlacedFlow {
	t.Helper()
	q.From, q.To = "h1", "h2"
	resp, err := r.PlaceFlow(t.Context(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	return resp.Msg
}

func (r *pathsRun) flows(t *testing.T) []*fairleadv1.PlacedFlow {
	t.Helper()
	resp, err := r.ListFlows(t.Context(), connect.NewRequest(&fairleadv1.ListFlowsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	return resp.Msg.Flows
}

func (r *pathsRun) load(t *testing.T, link, from string) *fairleadv1.LinkLoad {
	t.Helper()
	resp, err := r.GetFabric(t.Context(), connect.NewRequest(&fairleadv1.GetFabricRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range resp.Msg.Links {
		for _, d := range l.Loads {
			if l.Name == link && d.From == from {
				return d
			}
		}
	}
	t.Fatalf("no link %s from %s", link, from)
	return nil
}

// TestPathsLife: placed flows outlast a restart and a change of the file, and
// end when they are released or their time is over.
func TestPathsLife(t *testing.T) {
	folder := t.TempDir()
	serveFile(t, folder, pathsFile)
	r := servePaths(t, folder)
	wanted := &fairleadv1.WantedFields{DstPort: 80}
	one := r.place(t, &fairleadv1.PlaceFlowRequest{Wanted: wanted, Owner: "first"})
	two := r.place(t, &fairleadv1.PlaceFlowRequest{Wanted: wanted})
	short := r.place(t, &fairleadv1.PlaceFlowRequest{LeaseSeconds: 1})
	if one.Path.Hops[1].Link == two.Path.Hops[1].Link || one.Id != 1 || two.Id != 2 || short.Flow != nil {
		t.Errorf("%v, %v, %v", one, two, short)
	}
	pathsWait(t, func() error {
		if n := len(r.flows(t)); n != 2 {
			return fmt.Errorf("%d flows, want 2", n)
		}
		return nil
	})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = servePaths(t, folder)
	got := r.flows(t)
	if len(got) != 2 || got[0].Owner != "first" || got[0].Flow.String() != one.Flow.String() || got[1].Path.String() != two.Path.String() {
		t.Errorf("after a restart: %v, want %v and %v", got, one, two)
	}
	if l := r.load(t, one.Path.Hops[1].Link, "leaf1"); l.Flows != 1 {
		t.Errorf("after a restart: %v", l)
	}

	// A link of the first flow is lost: routers send it over the other.
	lost := "{between: [leaf1, " + one.Path.Hops[1].To + "], "
	serveFile(t, folder, strings.Replace(pathsFile, lost, lost+"down: true, ", 1))
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	pathsWait(t, func() error {
		if l := r.load(t, two.Path.Hops[1].Link, "leaf1"); l.Flows != 2 {
			return fmt.Errorf("%v, want both flows", l)
		}
		return nil
	})
	if _, err := r.ReleaseFlow(t.Context(), connect.NewRequest(&fairleadv1.ReleaseFlowRequest{Id: one.Id})); err != nil {
		t.Error(err)
	}
	renewed, err := r.RenewFlow(t.Context(), connect.NewRequest(&fairleadv1.RenewFlowRequest{Id: two.Id, LeaseSeconds: 3600}))
	if err != nil || renewed.Msg.UntilUnixMs < time.Now().Add(time.Hour-time.Minute).UnixMilli() {
		t.Errorf("%v, %v", renewed, err)
	}
	if left := r.flows(t); len(left) != 1 || left[0].Id != two.Id {
		t.Errorf("left: %v", left)
	}
	if next := r.place(t, &fairleadv1.PlaceFlowRequest{}); next.Id <= short.Id {
		t.Errorf("number %d was given before", next.Id)
	}
}

// TestPathsOneService: a second one with the same state is refused.
func TestPathsOneService(t *testing.T) {
	folder := t.TempDir()
	serveFile(t, folder, pathsFile)
	servePaths(t, folder)
	err := Run(t.Context(), Options{File: filepath.Join(folder, "fabric.yaml"), StateDir: filepath.Join(folder, "state"), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Error(err)
	}
}

// TestPathsCodes: refusals have the codes and remedies that the schema promises.
func TestPathsCodes(t *testing.T) {
	file := serveFile(t, t.TempDir(), pathsFile)
	f, err := topology.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Local(f)
	if err != nil {
		t.Fatal(err)
	}
	list := func(q *fairleadv1.ListPathsRequest) error {
		_, err := c.ListPaths(t.Context(), connect.NewRequest(q))
		return err
	}
	owned := func(owner string) error {
		_, err := c.PlaceFlow(t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: "h1", To: "h2", Owner: owner}))
		return err
	}
	place := func(from, to string) error {
		_, err := c.PlaceFlow(t.Context(), connect.NewRequest(&fairleadv1.PlaceFlowRequest{From: from, To: to}))
		return err
	}
	ports := func(q *fairleadv1.GetPortsRequest) error {
		q.From, q.To = "h1", "h2"
		_, err := c.GetPorts(t.Context(), connect.NewRequest(q))
		return err
	}
	report := func(link, from string, rate float64) error {
		_, err := c.ReportLoad(t.Context(), connect.NewRequest(&fairleadv1.ReportLoadRequest{Links: []*fairleadv1.MeasuredLink{{Link: link, From: from, BitsPerSecond: rate}}}))
		return err
	}
	release := func() error {
		_, err := c.ReleaseFlow(t.Context(), connect.NewRequest(&fairleadv1.ReleaseFlowRequest{Id: 9}))
		return err
	}
	for i, c := range []struct {
		err  error
		code connect.Code
		want string
	}{
		{list(&fairleadv1.ListPathsRequest{From: "h1", To: "h3"}), connect.CodeNotFound, "to h3: not in the fabric: there is no such router or host; did you mean h1?"},
		{owned("x\x1b[31m"), connect.CodeInvalidArgument, `owner "x\x1b[31m": must be at most 128 bytes`},
		{owned(strings.Repeat("x", 129)), connect.CodeInvalidArgument, "must be at most 128 bytes"},
		{place("h3", "h2"), connect.CodeNotFound, "from h3: not in the fabric"},
		{list(&fairleadv1.ListPathsRequest{From: "h1", To: "h1"}), connect.CodeNotFound, "no path from h1 to itself: name two nodes"},
		{list(&fairleadv1.ListPathsRequest{From: "h1", To: "h2", Rules: &fairleadv1.PathRules{Via: []string{"spine1", "spine2"}}}), connect.CodeNotFound, "no path from h1 to h2 via spine1, spine2; paths of equal cost pass leaf1, spine1, spine2, leaf2"},
		{list(&fairleadv1.ListPathsRequest{From: "h1", To: "h2", Limit: 1e6}), connect.CodeInvalidArgument, "limit 1000000: at most 100000"},
		{ports(&fairleadv1.GetPortsRequest{Number: 2}), connect.CodeNotFound, "path 2: there are 2 from h1 to h2, numbered from 0"},
		{ports(&fairleadv1.GetPortsRequest{Wanted: &fairleadv1.WantedFields{DstPort: 65536}}), connect.CodeInvalidArgument, "dst_port 65536: must be 65535 at most"},
		{ports(&fairleadv1.GetPortsRequest{Wanted: &fairleadv1.WantedFields{Protocol: "tpc"}}), connect.CodeInvalidArgument, `protocol "tpc": must be tcp, udp or a number`},
		{ports(&fairleadv1.GetPortsRequest{Wanted: &fairleadv1.WantedFields{Dst: "1.2.3.4"}}), connect.CodeInvalidArgument, "dst 1.2.3.4 is no address of h2, by the file; write one that is, such as 10.1.2.2"},
		{ports(&fairleadv1.GetPortsRequest{Wanted: &fairleadv1.WantedFields{Src: "x"}}), connect.CodeInvalidArgument, `src "x": not an IP address`},
		{ports(&fairleadv1.GetPortsRequest{Wanted: &fairleadv1.WantedFields{Ipv6: true}}), connect.CodeFailedPrecondition, "no address of IPv6 is known of h1 there; add one to the file, or name one"},
		{ports(&fairleadv1.GetPortsRequest{Wanted: &fairleadv1.WantedFields{DstPort: 80, SrcPorts: &fairleadv1.PortRange{First: 9, Last: 8}}}), connect.CodeInvalidArgument, "src_ports 9-8: write first and last"},
		{report("h1-leaf1", "leaf2", 1), connect.CodeInvalidArgument, "from leaf2: link h1-leaf1 does not end there; name one of its ends, h1 or leaf1"},
		{report("h1-leaf2", "leaf2", 1), connect.CodeNotFound, "h1-leaf2: not in the fabric: there is no such link; did you mean h1-leaf1?"},
		{report("h1-leaf1", "h1", 4e9), connect.CodeInvalidArgument, "link h1-leaf1: 4Gbit is more than it can carry, which is 1Gbit"},
		{report("leaf2:0-spine1:1", "leaf2", 1), connect.CodeInvalidArgument, "the file states no capacity"},
		{release(), connect.CodeNotFound, "flow 9 is not placed; `fairlead path flows` lists those that are"},
	} {
		if c.err == nil || connect.CodeOf(c.err) != c.code || !strings.Contains(c.err.Error(), c.want) || strings.Contains(c.err.Error(), "\n") {
			t.Errorf("%d: %v (%v), want %v %s", i, c.err, connect.CodeOf(c.err), c.code, c.want)
		}
	}
}

// TestPathsMeasured: what a router counts becomes its links' load, and flows
// are placed elsewhere.
func TestPathsMeasured(t *testing.T) {
	folder := t.TempDir()
	serveFile(t, folder, pathsFile)
	socket := filepath.Join(folder, "s.leaf1")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	fake := &countingRouter{began: time.Now(), hop: &fairleadv1.RouterHop{Port: 0, Interface: "eth1", Gateway: "10.9.0.2"}, bits: 0.8e9}
	mux := http.NewServeMux()
	mux.Handle(fairleadv1connect.NewFairleadHandler(fake))
	server := &http.Server{Handler: mux}
	go server.Serve(l)
	defer server.Close()
	r := servePaths(t, folder)
	pathsWait(t, func() error {
		d := r.load(t, "leaf1:0-spine1:0", "leaf1")
		if d.Measured < 0.4e9 || d.Measured > 1.6e9 || d.UntilUnixMs == 0 {
			return fmt.Errorf("%v, want about 0.8 Gbit/s", d)
		}
		return nil
	})
	for range 2 { // the second has half a link, against a fifth
		if p := r.place(t, &fairleadv1.PlaceFlowRequest{}); p.Path.Hops[1].To != "spine2" {
			t.Errorf("placed on the loaded link: %v", p.Path)
		}
	}
	server.Close()
	pathsWait(t, func() error {
		if d := r.load(t, "leaf1:0-spine1:0", "leaf1"); d.UntilUnixMs != 0 {
			return errors.New("the measurement is still there")
		}
		return nil
	})
}

// countingRouter is a router's API whose hop carries bits a second.
type countingRouter struct {
	fairleadv1connect.UnimplementedFairleadHandler
	began time.Time
	hop   *fairleadv1.RouterHop
	bits  float64
}

func (c *countingRouter) GetStatus(context.Context, *connect.Request[fairleadv1.GetStatusRequest]) (*connect.Response[fairleadv1.GetStatusResponse], error) {
	h := &fairleadv1.RouterHop{Port: c.hop.Port, Interface: c.hop.Interface, Gateway: c.hop.Gateway, Bytes: uint64(time.Since(c.began).Seconds() * c.bits / 8)}
	return connect.NewResponse(&fairleadv1.GetStatusResponse{Name: "leaf1", Router: &fairleadv1.Router{Hops: []*fairleadv1.RouterHop{h}}}), nil
}

// TestPathsFromPython runs the example over both ways to the service.
func TestPathsFromPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed here, so the example in Python is not tried")
	}
	folder := t.TempDir()
	serveFile(t, folder, pathsFile)
	r := servePaths(t, folder)
	for _, endpoint := range []string{"unix:" + filepath.Join(folder, "s"), "http://" + r.http} {
		out, err := exec.CommandContext(t.Context(), python, "-I", "-B", "../../examples/paths.py", endpoint, "h1", "h2", "--port", "5001").CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], "path 0 h1 leaf1 spine1 leaf2 h2 from source port ") ||
			!strings.HasPrefix(lines[2], "least loaded: h1-leaf1 leaf1:") {
			t.Errorf("%s: %v\n%s", endpoint, err, out)
		}
		out, err = exec.CommandContext(t.Context(), python, "-I", "-B", "../../examples/paths.py", endpoint, "h1", "nobody").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the path service refuses: to nobody: not in the fabric") {
			t.Errorf("%s: %v\n%s", endpoint, err, out)
		}
	}
	out, err := exec.CommandContext(t.Context(), python, "-I", "-B", "../../examples/paths.py", "/no/scheme", "h1", "h2").CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "must be unix:/path") {
		t.Errorf("%v\n%s", err, out)
	}
	if left := r.flows(t); len(left) != 0 {
		t.Errorf("the example left %v", left)
	}
}

// TestPathsJSON: JSON has all fields, and refuses those that nobody knows.
func TestPathsJSON(t *testing.T) {
	folder := t.TempDir()
	serveFile(t, folder, pathsFile)
	r := servePaths(t, folder)
	post := func(body string) (int, string) {
		resp, err := http.Post("http://"+r.http+"/fairlead.v1.Paths/ListPaths", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(data)
	}
	if code, body := post(`{"from": "h1", "to": "h2"}`); code != 200 || !strings.Contains(strings.ReplaceAll(body, " ", ""), `"steps":[{"router":"leaf1","ttl":64,"port":0}]`) {
		t.Errorf("%d %s", code, body)
	}
	for _, body := range []string{`{"from": "h1", "too": "h2"}`, `{"from": 1}`, `{`, ``} {
		if code, answer := post(body); code != 400 || !strings.Contains(answer, "invalid_argument") {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
}

// TestPathsOwnName: a name that a web page gave the loopback is refused.
func TestPathsOwnName(t *testing.T) {
	folder := t.TempDir()
	serveFile(t, folder, pathsFile)
	r := servePaths(t, folder)
	_, port, err := net.SplitHostPort(r.http)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{r.http: 200, "localhost:" + port: 200, "[::1]:" + port: 200, "127.0.0.1": 200,
		"page.example:" + port: 403, "page.example": 403, "192.0.2.1:" + port: 403, "localhost.example": 403} {
		q, err := http.NewRequest("POST", "http://"+r.http+"/fairlead.v1.Paths/ListFlows", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		q.Host = host
		q.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, resp.StatusCode, want)
		}
	}
}
