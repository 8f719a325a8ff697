package show

import (
	"io"

	"github.com/fairlead/fairlead/sim"
)

// Plot writes a result's figures as one SVG, one below the other.
func Plot(w io.Writer, r *sim.Result) error { return nil }
