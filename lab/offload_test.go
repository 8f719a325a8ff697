package lab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/vip"
)

// TestJudgeOffload: what the flood made up is told from what connections sent.
func TestJudgeOffload(t *testing.T) {
	offloaded := RunTally{Scheme: "cheetah", Policy: "rr", Handshake: vip.HandshakeOffload}
	plain := RunTally{Scheme: "cheetah", Policy: "rr"}
	for _, c := range []struct {
		name           string
		opened, forged uint64
		changed, stack uint64
		plain          uint64
		want           string
	}{
		{"the flood's alone", 10, 300, 300, 0, 5, ""},
		{"one of a connection", 10, 300, 301, 0, 5, "1 of 100000 segments were changed, must be 0"},
		{"a few behind the stack's SYNs", 10, 300, 350, 7, 5, ""},
		{"many behind them", 10, 300, 600, 7, 5, "300 of 100000 segments were changed, and 7 SYNs left to the stack"},
		{"nothing offloaded", 0, 0, 0, 0, 5, "no handshake was offloaded"},
		{"nothing beside", 10, 0, 0, 0, 0, "proves nothing"},
	} {
		r := &runner{result: &Result{Runs: []RunTally{offloaded, plain}, Reasons: Counters{"handshake_bad_mac": c.forged}, Handshakes: []Handshakes{
			{VIP: offloaded.Name(), Opened: c.opened, Changed: c.changed, Stack: c.stack, Segments: 100000},
			{VIP: plain.Name(), Changed: c.plain, Segments: 100000}}}}
		var said []string
		r.judgeOffload(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if got := strings.Join(said, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, must say %q", c.name, got, c.want)
		}
	}
}
