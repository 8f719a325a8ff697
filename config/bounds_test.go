package config

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// repeated is head and then line, with numbers from 0, until there are most bytes.
func repeated(most int, head, line string) string {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; b.Len() < most; i++ {
		if strings.Contains(line, "%d") {
			fmt.Fprintf(&b, line, i)
		} else {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestHostileTexts: whatever somebody sends as a desired state, as much as a request
// takes or as a file may have, is refused within a second of a processor and 300 MiB, with
// what is wrong and the remedy. Some took 5 s and 1.6 GiB before, and held off all other
// plans and changes meanwhile.
func TestHostileTexts(t *testing.T) {
	const request, file = 5<<20 - 100, yamlfile.MaxFile - 2200
	const lb = "balancers: [{name: lb1, interfaces: [eth0]}]\n"
	const one = lb + "servers: [{name: s1, address: 10.0.0.1}]\n"
	for n, c := range []struct{ head, line string }{
		{"vips: [", "a,"}, {"vips: {", "a,"}, {"vips: {", "%d,"}, {"vips: [", "{},"}, {"vips: [", "[],"}, {"vips: [", "a: b,"},
		{one + "vips:\n", "- {}\n"},
		{one + "vips:\n", "- {name: v%d, address: 192.0.2.1, port: 80, servers: [s1]}\n"},
		{repeated(2<<20, lb+"servers:\n", "- {name: s%d, address: 10.0.0.1}\n") + "vips:\n", "- {servers: [s1]}\n"},
		{lb + "servers:\n", "- {}\n"},
		{lb + "servers:\n", "- {name: s1, address: 10.0.0.1}\n"},
		{lb + "servers:\n", "- name: s%d                              \n  address: 10.0.0.1\n"},
		{one + "vips: [{address: 192.0.2.1, port: 80, servers: [", "s1,"},
		{repeated(1<<20, lb+"servers:\n", "- {name: s%d, address: 10.0.0.1}\n") + "vips: [{address: 192.0.2.1, port: 80, servers: [", "x%d,"},
		{one + "x: &a [" + strings.Repeat("s1,", 1000) + "]\nvips:\n", "- {servers: *a}                                   \n"},
		{"balancers: [{name: lb1, interfaces: [", "eeeeeeeeee%d,"},
		{lb + "tunnel_sources: [", "10.0.0.0/8,"},
		{one + "vips:\n", "- {port: " + strings.Repeat("9", 1000) + "}\n"},
		{lb + "limits: {flows: ", "9"}, {lb + "servers: [{name: ", "a"},
		{"", "? " + strings.Repeat("k", 2000) + "%d\n: v\n"}, {"", "vips: a\n"}, {"", "k%d: a\n"},
		{"", "["}, {"", "- " + strings.Repeat("[", 900) + strings.Repeat("]", 900) + "\n"},
		{"vips: []\n", "# a\n"}, {"vips: []\n", "# aaaaaaaaaaaa\n"}, {"vips:\n", "- a # b\n"}, {"vips: []\n", "\n"},
		{"vips:\n", "- &a%d a\n"}, {"vips:\n- &a {}\n", "- *a\n"}, {"vips:\n", "- !!str a\n"}, {"vips:\n", "- \"\\x41\"\n"}, {"vips:\n", "- |\n  a\n"},
		{"controllers:\n", "- {name: c%d, store: \"https://10.0.0.1:2379\", peer: \"https://10.0.0.1:2380\"}\n"},
		{lb + "store: {etcd: [", "\"https://10.0.0.1:2379\","},
		{"balancers:\n", "- {name: lb%d, interfaces: [eth0], bgp: {router_id: 10.0.0.1}}\n"},
		{"bgp: {local_as: 65001}\nbalancers: [{name: lb1, interfaces: [eth0], bgp: {router_id: 10.0.0.1, neighbours: [", "{address: 10.0.0.254, as: 65000},"},
		{"switches:\n", "- {name: sw%d}\n"}, {"switches: [{name: sw1, ports: {", "ppppppp%d: a,"},
		{lb + "vips: [{address: 192.0.2.1, port: 80, communities: [", "\"1:1\","},
		{"vips:\n", "-\r"}, {"vips: []\n", "#\r"}, {"", "a:\r"}, {"vips:\n", "-\u0085"}, {"vips:\n", "-\u2028"}, {"vips:\n", "- " + strings.Repeat("- ", 5000) + "[]\n"},
		{"", "---\n"}, {"", "a:\n"}, {"", "?\n"}, {"vips:\n", "-\n"}, {"vips: ", "\x00"}, {"vips: ", "\xff"},
	} {
		for _, size := range []int{file, request} {
			if size == request && n > 0 {
				continue // it is not looked at
			}
			text := repeated(size, c.head, c.line)
			err, took, peak := costs(func() error {
				_, err := (&Config{}).Desired("fairlead.yaml", []byte(text))
				return err
			})
			what := fmt.Sprintf("%d bytes of %.60q", len(text), c.line)
			if err == nil || !strings.Contains(err.Error(), "; ") {
				t.Errorf("%s: %.300v: no remedy", what, err)
			}
			if took > 3*time.Second { // a busy machine's processors are slower
				t.Errorf("%s took %v", what, took)
			}
			if peak > 300<<20 {
				t.Errorf("%s took %d MiB", what, peak>>20)
			}
			if testing.Verbose() {
				t.Logf("%.2fs %4d MiB %s: %.100v", took.Seconds(), peak>>20, what, err)
			}
		}
	}
}

// costs is what do takes of processors, and of memory at its height, in bytes.
func costs(do func() error) (err error, took time.Duration, peak uint64) {
	var most atomic.Uint64
	heap := func() uint64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	runtime.GC()
	before, began := heap(), processor()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			most.Store(max(most.Load(), heap()))
			time.Sleep(time.Millisecond)
		}
	}()
	err = do()
	took = processor() - began
	stop()
	<-ended
	return err, took, max(most.Load(), before) - before
}

// processor is what this process took of processors so far.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestLargestText: a file of as many servers as there may be, by address, weight and pool,
// is one.
func TestLargestText(t *testing.T) {
	var b strings.Builder
	b.WriteString("secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\ncontrollers: [{name: c1}]\nbalancers: [{name: lb1, interfaces: [eth0]}]\nservers:\n")
	const servers, pools = 1 << 16, 4
	for i := range servers {
		fmt.Fprintf(&b, "- {name: s%d, address: 10.%d.%d.%d}\n", i, i>>16, i>>8&255, i&255)
	}
	b.WriteString("limits: {server_lines: 65536}\nvips:\n")
	for p := range pools {
		fmt.Fprintf(&b, "- {name: v%d, address: 192.0.2.%d, port: 80, scheme: jet, hash: table-hrw, servers: [s%d", p, p, p*servers/pools)
		for i := 1; i < servers/pools; i++ {
			fmt.Fprintf(&b, ", s%d", p*servers/pools+i)
		}
		b.WriteString("]}\n")
	}
	c, err := Parse("fairlead.yaml", []byte(b.String()))
	if err != nil || len(c.Servers) != servers {
		t.Errorf("%d bytes: %.300v", b.Len(), err)
	}
}
