package draintime

import (
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cmd/built"
)

// A small run: what is measured is in its order, and every drain ends new connections.
func TestDrainTime(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds network namespaces: run it as root")
	}
	r, err := Run(t.Context(), Options{Program: built.Fairlead(t), LBs: 2, Drains: 3, Rate: 500, Watch: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Verdict) > 0 {
		t.Error(strings.Join(r.Verdict, "\n"))
	}
	if len(r.Drains) != 3 || r.LastNew.Median <= 0 || r.LastNew.Worst < r.LastNew.Median || r.Version.Median <= 0 || r.Whole.Median <= 0 || r.Put.Median <= 0 || r.Gap <= 0 {
		t.Errorf("%+v", r)
	}
	for _, d := range r.Drains {
		// Nobody gives up connections before the command, nor after it has said so. (Of the
		// head this process may hear later than the command, on a busy machine.)
		if d.LastNew <= 0 || d.LastNew > d.Answered+1 || d.Agreed <= 0 {
			t.Errorf("%+v", d)
		}
	}
}
