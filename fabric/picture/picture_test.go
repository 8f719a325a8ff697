package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/fabric/topology"
)

func draw(t *testing.T, p *Picture) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Draw(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("no XML: %v\n%s", err, b.String())
		}
	}
	return b.String()
}

// The bad link has its sign, its colour and its words; the most urgent mark
// counts; names are escaped.
func TestDraw(t *testing.T) {
	f, err := topology.FatTree(4)
	if err != nil {
		t.Fatal(err)
	}
	f.Nodes[0].Name = "<h&1>"
	p := Picture{Fabric: f, Title: "a & b"}
	p.Mark(3, Mark{Style: Lost, Text: "3 probes had no answer"})
	p.Mark(3, Mark{Style: Well})
	p.Mark(4, Mark{Style: Slow, Perhaps: true})
	svg := draw(t, &p)
	for _, want := range []string{"a &amp; b", "&lt;h&amp;1&gt;", ": 3 probes had no answer</title>", "✕", ">?<", "loses packets", "slow (?"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if strings.Contains(svg, "not used") {
		t.Error("the legend tells of what is not there")
	}
}

// Every fabric has a picture: its nodes stand within it, no two at one place,
// hosts below routers.
func TestPlaced(t *testing.T) {
	var fabrics []*topology.Fabric
	add := func(f *topology.Fabric, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		fabrics = append(fabrics, f)
	}
	add(topology.FatTree(8))
	add(topology.BCube(4, 1))
	add(topology.VL2(4, 4, 2))
	add(topology.LeafSpine(2, 7, 1))
	add(&topology.Fabric{}, nil)
	for _, f := range fabrics {
		l := placed(f)
		seen := map[point]bool{}
		for i, at := range l.at {
			if at.x < 0 || at.x > l.width || at.y < 0 || at.y > l.height || seen[at] {
				t.Errorf("%s stands at %v of %d × %d", f.Nodes[i].Name, at, l.width, l.height)
			}
			seen[at] = true
			if f.Nodes[i].Host != (at.y == l.height-border) {
				t.Errorf("%s (host %v) stands at height %d", f.Nodes[i].Name, f.Nodes[i].Host, at.y)
			}
		}
		draw(t, &Picture{Fabric: f})
	}
}

// The writer's error is the picture's.
func TestDrawFails(t *testing.T) {
	f, err := topology.LeafSpine(1, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("full")
	if err := (&Picture{Fabric: f}).Draw(failing{failed}); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
