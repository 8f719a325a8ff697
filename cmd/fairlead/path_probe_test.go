package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/cmd/cli/clitest"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/fabrics"
	"github.com/fairlead/fairlead/lab/fabrics/fabricstest"
	"github.com/fairlead/fairlead/lab/netspace"
)

// probed is `path probe -o json`.
type probed struct {
	From      string
	Good, Bad int
	Paths     []struct {
		Path    int
		Via     []string
		Verdict string
		Links   []string
	}
	Findings []struct {
		Kind   string
		Links  []string
		Paths  []int
		Detail string
	}
}

// The commands as people use them: an answerer on one host, probes from the
// other; a cut link is named, in the table, as JSON and in the picture.
func TestPathProbe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("fabrics of namespaces need root: run the tests with sudo")
	}
	program := built.Fairlead(t)
	of, err := topology.LeafSpine(2, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	of.Selector.Key[0] = 1
	f, err := fabrics.Up(t.Context(), of, fabrics.Options{Name: fmt.Sprint("bcmd", os.Getpid()), Program: program, Wires: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Down(); err != nil {
			t.Error(err)
		}
	})
	from, to := f.Name+"-host-0", f.Name+"-host-1"
	probe := func(more ...string) (string, error) {
		args := append([]string{program, "path", "probe", "-f", f.Path(), from, to, "--count", "5"}, more...)
		return fabricstest.Run(t.Context(), f, "host-0", args...)
	}

	// Nobody answers yet.
	out, err := probe("--rates=false")
	if err == nil || !strings.Contains(out, "paths as a whole: lost ("+to+" has no answerer on UDP port 6081; run there: fairlead path answer)") {
		t.Errorf("without an answerer: %v, %s", err, out)
	}
	answerer, err := f.Spawn("host-1", "answerer", program, "path", "answer", "-f", f.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer answerer.Stop()
	if !netspace.WaitFor(10*time.Second, func() bool { return strings.Contains(answerer.Log(), "answering probes") }) {
		t.Fatal(answerer.Log())
	}
	if out, err = probe(); err != nil || strings.Count(out, " good ") != 2 {
		t.Errorf("all is well: %v\n%s", err, out)
	}

	learnFrom(t, f, program, from, to)

	// One link is cut.
	link := f.Link("leaf-0", "spine-1", 0)
	if err := f.Cut(link); err != nil {
		t.Fatal(err)
	}
	plot := filepath.Join(t.TempDir(), "fabric.svg")
	out, err = probe("-o", "json", "--plot", plot)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cli.ExitFailed {
		t.Errorf("with a bad link: %v, want exit status 1", err)
	}
	var p probed
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	name := f.Topology().LinkName(link)
	if p.Good != 1 || p.Bad != 1 || len(p.Findings) != 1 || !slices.Equal(p.Findings[0].Links, []string{name}) {
		t.Errorf("link %s is cut: %+v", name, p)
	}
	svg, err := os.ReadFile(plot)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(svg, new(struct{})); err != nil || !bytes.Contains(svg, []byte("loses packets")) {
		t.Errorf("picture: %v\n%s", err, svg)
	}
	if keep := os.Getenv("KEEP_SVG"); keep != "" {
		_ = os.WriteFile(keep, svg, 0o644)
	}
	if out, _ = probe("--rates=false"); !strings.Contains(out, "link "+name+": lost") {
		t.Errorf("table does not name %s:\n%s", name, out)
	}
	t.Log(out)
	watch(t, f, program, from, to, name, func() error { return f.Restore(link) })
}

// learnFrom learns what lies between the hosts with the selector alone.
func learnFrom(t *testing.T, f *fabrics.Fabric, program, from, to string) {
	for _, n := range f.Topology().Nodes {
		if err := f.In(n.Name, func() error { return netspace.Sysctl("net.ipv4.icmp_ratelimit", "0") }); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "selector.yaml")
	whole, err := os.ReadFile(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	selector, _, _ := strings.Cut(string(whole), "routers:")
	if err := os.WriteFile(file, []byte(selector), 0o600); err != nil {
		t.Fatal(err)
	}
	target := f.Topology().Nodes[f.Node(to)].Addresses[0].String()
	out, err := fabricstest.Run(t.Context(), f, "host-0", "sh", "-c", fmt.Sprintf("%s path learn -f %s --from %s %s=%s 2>/dev/null", program, file, from, to, target))
	if err != nil {
		t.Fatalf("path learn: %v %s", err, out)
	}
	learned, err := topology.Parse("learned.yaml", []byte(out))
	if err != nil {
		t.Fatalf("what was learned: %v\n%s", err, out)
	}
	if len(learned.Nodes) != len(f.Topology().Nodes) || len(learned.Links) != len(f.Topology().Links) {
		t.Errorf("learned %d nodes and %d links, there are %d and %d:\n%s", len(learned.Nodes), len(learned.Links),
			len(f.Topology().Nodes), len(f.Topology().Links), out)
	}
	learnBack(t, f, program, from, learned)
}

// learnBack learns the other side with what the first one saw. A router that
// answers from another address than the file has is told of.
func learnBack(t *testing.T, f *fabrics.Fabric, program, to string, learned *topology.Fabric) {
	back := func(want string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "learned.yaml")
		var text bytes.Buffer
		if err := topology.Write(&text, learned); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := fabricstest.Run(t.Context(), f, "host-1", "sh", "-c", fmt.Sprintf("%s path learn -f %s %s 2>&1 >/dev/null", program, file, to))
		if err != nil || !strings.Contains(said, want) || strings.Contains(said, "warning") != strings.Contains(want, "may be") {
			t.Errorf("%v, want %s:\n%s", err, want, said)
		}
	}
	back(fmt.Sprintf("%d routers and hosts, %d links", len(learned.Nodes), len(learned.Links)))
	for i := range learned.Nodes {
		if n := &learned.Nodes[i]; !n.Host {
			answers := n.Name
			n.Name, n.Addresses = "renamed", []netip.Addr{netip.MustParseAddr("203.0.113.5")}
			back(answers + " may be renamed")
			return
		}
	}
	t.Error("no router was learned")
}

// watch follows a fabric whose link is mended.
func watch(t *testing.T, f *fabrics.Fabric, program, from, to, link string, mend func() error) {
	w, err := f.Spawn("host-0", "watch", program, "path", "probe", "-f", f.Path(), from, to, "--watch", "--metrics", "127.0.0.1:9640")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	said := func(text string) {
		t.Helper()
		if !netspace.WaitFor(20*time.Second, func() bool { return strings.Contains(w.Log(), text) }) {
			t.Fatalf("watch never says %q:\n%s", text, w.Log())
		}
	}
	said("link " + link + ": lost")
	metrics, err := fabricstest.Run(t.Context(), f, "host-0", "curl", "-s", "http://127.0.0.1:9640/metrics")
	for _, want := range []string{`fairlead_path_verdict{path="1",target="` + to + `",verdict="lost"} 1`, `fairlead_path_suspected_link{kind="lost",link="` + link + `"} 1`} {
		if err != nil || !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s: %v\n%s", want, err, metrics)
		}
	}
	if err := mend(); err != nil {
		t.Fatal(err)
	}
	said("link " + link + ": no longer lost")
	t.Log(w.Log())
}

func TestPathProbeUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"path", "probe", "a"}, cli.ExitUsage, "probe A B"},
		{[]string{"path", "probe", "a", "b", "--count", "2"}, cli.ExitUsage, "--count 2: must be 3 or more"},
		{[]string{"path", "probe", "a", "b", "--metrics", ":1"}, cli.ExitUsage, "add --watch"},
		{[]string{"path", "probe", "a", "b", "--plot", "x.png"}, cli.ExitUsage, "must be named *.svg"},
		{[]string{"path", "probe", "a", "b", "-o", "xml"}, cli.ExitUsage, "must be table, json or yaml"},
		{[]string{"path", "probe", "a", "b", "-f", "/nowhere.yaml"}, cli.ExitFailed, "/nowhere.yaml"},
		{[]string{"path", "learn"}, cli.ExitUsage, "HOST"},
		{[]string{"path", "answer", "-f", "/nowhere.yaml"}, cli.ExitFailed, "/nowhere.yaml"},
	} {
		if got, _, errs := clitest.Run(newRootCommand(), c.args...); got != c.want || !strings.Contains(errs, c.says) {
			t.Errorf("%v: exit status %d, want %d, saying %q: %s", c.args, got, c.want, c.says, errs)
		}
	}
}
