package chaos

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Print writes the result for people.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintf(w, "seed %d, kernel %s, %.0f s; %d faults\n\n", r.Seed, r.Kernel, r.Seconds, len(r.Faults))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FAULT\tTIMES")
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		fmt.Fprintf(t, "%s\t%d\n", kind, r.ByKind[kind])
	}
	fmt.Fprintln(t, "\nVIP\tCONNECTIONS\tCOMPLETED\tLIVED THROUGH A CHANGE\tLOST WITH A SERVER\tBROKEN\tRSTS")
	for _, v := range vips {
		c := r.Connections[v.Name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\n", v.Name, c.Started, c.Completed, c.Survived, c.LostWithServer, c.Broken, c.Resets)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range r.Failures {
		fmt.Fprintf(w, "%s: a connection (%s) from %s of %s, after %.1f s at %.1f s: %s\n", f.Target, f.Kind, f.Local, cmp.Or(f.Server, f.By, "nobody"), f.Age, f.At, f.Error)
	}
	fmt.Fprintf(w, "\n%d changes acknowledged, %d refused as the store was away, %d that failed otherwise and may have been made in part; %d versions, looked at %d times, and %d times at a daemon's\n",
		r.Changes[Done], r.Changes[Refused], r.Changes[Unknown], r.Versions, r.Looks, r.Sights)
	_, err := fmt.Fprintf(w, "%d processes ended by themselves; well again after %.1f s at most, and at the end, everywhere, after %.1f s\n", len(r.Restarts), r.Healed, r.Recovered)
	return err
}
