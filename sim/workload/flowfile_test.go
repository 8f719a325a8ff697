package workload

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sim"
)

const flowHead = "start,duration,source,source_port,destination,destination_port,protocol,bytes\n"

func TestFlowFile(t *testing.T) {
	r, err := ReadFlowFile(strings.NewReader("# of the edge\n"+flowHead+
		"1700000012.5,0,192.0.2.7,51234,203.0.113.80,443,tcp,60\n"+
		"1700000010.000000001, 2.25 ,2001:db8::1,51234,2001:db8::80,443,udp,0\n"), "flows.csv")
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Flows) != 2 || r.Flows[0].Duration != 2250*sim.Millisecond || r.Flows[1].Start != 2499999999 || r.Flows[0].Protocol != 17 {
		t.Fatalf("flows %+v", r.Flows)
	}
	if r.Span() != 2499999999 || r.Lifetimes().Len() != 2 {
		t.Errorf("span %d, %d lifetimes", r.Span(), r.Lifetimes().Len())
	}
	a, again := r.Arrivals(1), r.Arrivals(1)
	for range r.Flows {
		c, ok := a.Next()
		d, _ := again.Next()
		if !ok || c != d || c.Key == 0 {
			t.Errorf("%+v and %+v", c, d)
		}
	}
	if _, ok := a.Next(); ok {
		t.Error("a third connection")
	}
	if _, err := ReadFlowFile(strings.NewReader("destination_port,destination,source_port,source,duration,start\n443,203.0.113.80,1,192.0.2.7,1,.5\n"), "x"); err != nil {
		t.Error("any order, fewest columns:", err)
	}
}

func TestBadFlowFiles(t *testing.T) {
	row := func(s string) string { return flowHead + "0,1,192.0.2.7,51234,203.0.113.80,443,tcp,60\n" + s + "\n" }
	for file, want := range map[string]string{
		"":                      "f.csv:1: the file is empty",
		flowHead:                "f.csv:1: no connections",
		"start,duration\n0,1\n": `f.csv:1: column "source" is missing`,
		"start,start\n":         `f.csv:1: column "start" is there twice`,
		"begin\n":               `f.csv:1: column "begin"`,
		row("1,,192.0.2.7,1,203.0.113.80,443,tcp,6"):      "f.csv:3: column duration is empty; write seconds",
		row("1,1,192.0.2.7,1,203.0.113.80,443,tcp"):       "f.csv:3: column bytes is empty",
		row("-1,1,192.0.2.7,1,203.0.113.80,443,tcp,6"):    `f.csv:3: column start: "-1"; write seconds, 0 or more`,
		row("1,1e30,192.0.2.7,1,203.0.113.80,443,tcp,6"):  `f.csv:3: column duration: "1e30"`,
		row("1,0x1e3,192.0.2.7,1,::1,443,tcp,6"):          `f.csv:3: column duration: "0x1e3"`,
		row("-1e3,1,192.0.2.7,1,::1,443,tcp,6"):           `f.csv:3: column start: "-1e3"`,
		row("1,1.1234567890x,192.0.2.7,1,::1,443,tcp,6"):  `f.csv:3: column duration: "1.1234567890x"`,
		row("99999999999,1,192.0.2.7,1,::1,443,tcp,6"):    `f.csv:3: column start: "99999999999"`,
		row("1,1,192.0.2,1,203.0.113.80,443,tcp,6"):       `f.csv:3: column source: "192.0.2"; write the client's IP`,
		row("1,1,192.0.2.7,1,fe80::1%eth0,443,tcp,6"):     `f.csv:3: column destination: "fe80::1%eth0"`,
		row("1,1,192.0.2.7,1,2001:db8::1,443,tcp,6"):      `f.csv:3: column destination: "2001:db8::1"; write an address of the source's family`,
		row("1,1,192.0.2.7,65536,203.0.113.80,443,tcp,6"): `f.csv:3: column source_port: "65536"; write 0 to 65535`,
		row("1,1,192.0.2.7,1,203.0.113.80,443,sctp,6"):    `f.csv:3: column protocol: "sctp"; write tcp or udp`,
		row("1,1,192.0.2.7,1,203.0.113.80,443,tcp,-6"):    `f.csv:3: column bytes: "-6"`,
		row("1,1,192.0.2.7,1,203.0.113.80,443,tcp,6,7"):   "f.csv:3: 9 fields under 8 columns",
		row(`1,1,"192.0.2.7,1,203.0.113.80,443,tcp,6`):    "f.csv:",
		row("1,1,\"192.0.2.7\"x,1,::1,443,tcp,6"):         "f.csv:3: column",
	} {
		_, err := ReadFlowFile(strings.NewReader(file), "f.csv")
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q:\n got %v\nwant %s…", file, err, want)
		}
	}
}

// Exponents are what programs print of short times; the mark before UTF-8 is
// what spreadsheets write.
func TestFlowFileOfPrograms(t *testing.T) {
	r, err := ReadFlowFile(strings.NewReader("\ufeff"+flowHead+"0,6.25e-05,192.0.2.7,51234,203.0.113.80,443,tcp,60\n1E1,0,192.0.2.7,51234,203.0.113.80,443,tcp,60\n"), "flows.csv")
	if err != nil {
		t.Fatal(err)
	}
	if r.Flows[0].Duration != 62500 || r.Flows[1].Start != 10*sim.Second {
		t.Errorf("flows %+v", r.Flows)
	}
}
