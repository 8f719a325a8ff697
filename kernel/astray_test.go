package kernel

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// What stays astray is logged once, what is mended is forgotten.
func TestAstray(t *testing.T) {
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	var a Astray
	look := func(errs map[string]error) {
		a.Look(log, func(note func(string, error)) {
			for what, err := range errs {
				note(what, err)
			}
		})
	}
	broken := map[string]error{"xdp-eth1": errors.New("second"), "pins": errors.New("first"), "fine": nil}
	look(broken)
	look(broken)
	if got := a.List(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("astray %q", got)
	}
	if n := strings.Count(said.String(), "second"); n != 1 {
		t.Errorf("said %d times: %s", n, &said)
	}
	look(nil)
	if got := a.List(); len(got) > 0 {
		t.Errorf("astray %q though all is well", got)
	}
}
