package lb

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/soak"
	"github.com/fairlead/fairlead/tables"
)

// TestNamedLimits: the kernel takes the limits that tables.Fits names, and VIPs
// that need them in force.
func TestNamedLimits(t *testing.T) {
	t.Parallel()
	vips := 16
	if soak.On() {
		vips = 1000 // 1 GiB of tables
	}
	w := newWired(t)
	o := w.options()
	o.Limits.ServerLines, o.Limits.TableEntries = 1<<10, 1<<10
	a := assignment(1)
	for i := range vips {
		v := a.VIPs[0]
		v.ID, v.Name, v.Port, v.HashRows, v.Slots = uint32(i+1), fmt.Sprint("v", i), uint16(i+1), 4096, nil
		for n := range uint16(100) {
			v.Slots = append(v.Slots, controller.Slot{Number: n, Server: fmt.Sprint("s", n), Address: serverAddr(11), Weight: 1, State: controller.Active})
		}
		a.VIPs = append(a.VIPs, v)
	}
	a.VIPs = a.VIPs[1:]
	err := tables.Fits(a, o.Limits)
	if err == nil {
		t.Fatal("no limit is named")
	}
	at := strings.Index(err.Error(), "table_entries: ")
	lines := strings.Index(err.Error(), "server_lines: ")
	if at < 0 || lines < 0 {
		t.Fatal(err)
	}
	fmt.Sscanf(err.Error()[at:], "table_entries: %d", &o.Limits.TableEntries)
	fmt.Sscanf(err.Error()[lines:], "server_lines: %d", &o.Limits.ServerLines)
	l := w.open(o)
	if _, err := l.Apply(a, nil); err != nil {
		t.Error(err)
	}
	if line, ok := l.Line(a.VIPs[vips-1].ID, 99); !ok || int(line) >= o.Limits.ServerLines {
		t.Errorf("the last server's line is %d, %t", line, ok)
	}
}
