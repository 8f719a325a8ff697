package lb

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/scheme/jet"
	"github.com/fairlead/fairlead/scheme/model"
	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/vip"
)

// What Go says twice agrees with the header.
func TestConstantsAgreeWithHeader(t *testing.T) {
	header := ""
	for _, name := range []string{"fairlead.h", "balancer.h"} {
		b, err := os.ReadFile("../../bpf/include/" + name)
		if err != nil {
			t.Fatal(err)
		}
		header += string(b)
	}
	for _, want := range []string{"#define FL_LAYOUT 2\n", "#define FL_VIP_BITS 12\n", "#define FL_LINE_IPV6 1 ", "#define FL_LINE_UNRESOLVED 2 ",
		"#define FL_LINE_CLOSED 4 ", "#define FL_LINE_DOWN 8 ", "#define FL_ROW_NONE 0x7fff\n", "#define FL_FLOW_WAYS 7\n", "#define FL_FLOW_WRITES 64\n", "#define FL_PROTO_FRAG 0x80\n",
		fmt.Sprintf("#define FL_LINE_STEERED %d ", tables.LineSteered), fmt.Sprintf("#define FL_STEER_ENTRIES %d\n", steer.Entries)} {
		if !strings.Contains(header, want) {
			t.Errorf("the header does not say %q: change the constant in Go too", want)
		}
	}
	if steer.Entries != len(model.Steer{}) {
		t.Errorf("a row has %d entries, the model's %d", steer.Entries, len(model.Steer{}))
	}
	b, err := os.ReadFile("../../bpf/lb/flows.h")
	if err != nil {
		t.Fatal(err)
	}
	const slack = 64 // units: used as much "later" than now is not old
	if !strings.Contains(string(b), fmt.Sprintf("#define FL_FLOW_SLACK %d\n", slack)) || jet.Entry(slack<<16).Expired(0) || !jet.Entry((slack+1)<<16).Expired(0) {
		t.Errorf("flows.h and scheme/jet do not both have a slack of %d", slack)
	}
	for state, name := range []string{"NEW", "CONFIRMED", "FADING", "DATAGRAM"} {
		if want := fmt.Sprintf("%dULL << 16 * FL_FLOW_%s", jet.State(state).Idle(), name); !strings.Contains(string(b), want) {
			t.Errorf("flows.h does not say %q: change the constant in scheme/jet too", want)
		}
	}
	// What a warm-up outlasts is forgotten by the flow table, not before.
	for state, warmUp := range map[jet.State]time.Duration{jet.Confirmed: vip.DefaultWarmUp, jet.Datagram: vip.DefaultWarmUpUDP} {
		if idle := time.Duration(state.Idle()) * jet.Unit * time.Millisecond; warmUp > idle || idle-warmUp > 2*time.Second {
			t.Errorf("the default warm-up of %v and the %v for which %s entries are known differ", warmUp, idle, state)
		}
	}
	list := header[strings.Index(header, "#define FL_REASONS(X)"):strings.Index(header, "enum fl_reason {")]
	for i, m := range regexp.MustCompile(`X\((\w+)\)`).FindAllStringSubmatch(list, -1) {
		if got := reasonNames[i]; got != strings.ToLower(m[1]) {
			t.Errorf("reason %d is %s in Go, %s in the header", i, got, m[1])
		}
	}
}
