package experiment

import (
	"encoding/json"
	"strings"
	"testing"
)

// The same seed draws the same, another one other ports; none comes twice, and
// none is one that the kernel chooses (32768 on).
func TestPorts(t *testing.T) {
	a, b, c := Ports(Random(7)), Ports(Random(7)), Ports(Random(8))
	seen, differ := map[int]bool{}, false
	for range 10_000 {
		port := a().Port
		if port < 1024 || port >= 32768 || seen[port] || port != b().Port {
			t.Fatalf("port %d, seen before: %v", port, seen[port])
		}
		seen[port] = true
		differ = differ || port != c().Port
	}
	if !differ {
		t.Error("another seed draws the same ports")
	}
}

// A head is what results begin with, and has a verdict only where there is one.
func TestHead(t *testing.T) {
	h := Begin("churn", 7)
	h.End()
	text := func() string {
		data, err := json.Marshal(struct {
			Head
			Runs []int `json:"runs"`
		}{h, []int{1}})
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := text(); !strings.HasPrefix(got, `{"scenario":"churn","seed":7,"kernel":"`) || !strings.HasSuffix(got, `,"runs":[1]}`) || strings.Contains(got, "verdict") || !(h.Seconds > 0) {
		t.Error(got)
	}
	h.Verdict = []string{"1 connection broke"}
	if got := text(); !strings.Contains(got, `"verdict":["1 connection broke"]`) {
		t.Error(got)
	}
}
