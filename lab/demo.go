package lab

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// demoScale is a churn told as a story: one kind of change after the other.
var demoScale = Scale{
	Connections: 800,
	Slot:        3500 * time.Millisecond,
	Steps: []string{"drain", "add", "reshuffle", "rotate", "kill lb", "join lb", "lose lb",
		"crash", "remove", "add another"},
}

// Demo runs a small churn of program, a fairlead binary, and tells it to a
// newcomer. live rewrites the current line as counts change, for a terminal.
func Demo(ctx context.Context, w io.Writer, live bool, seed uint64, program string) (*Result, error) {
	fmt.Fprint(w, `Fairlead demo: a small data centre on this machine, made of network namespaces

             ECMP       ┌ lb1  lb2   (lb3 waits)          balancers
   client ── router ────┤
                        └ server1 … server6   (7 to 10 wait)  web servers

A client opens hundreds of real TCP connections - short requests, streams,
uploads, idle ones - to two addresses of the same servers, while the data
centre changes under them:

   cheetah     Fairlead's way: the server's number travels, encrypted, in the
               connection's own TCP timestamps; balancers remember nothing
   stateless   for comparison: a consistent hash chooses the server of every
               packet anew

A connection is broken if its client sees a reset, a timeout, another server
or a wrong byte although its server lives.

Building the lab ...
`)
	t := &teller{w: w, live: live}
	result, err := Run(ctx, RunOptions{
		Scenario: "churn", Seed: seed, Program: program, Policies: []string{"rr"}, IPv4: true, Scale: demoScale, Watch: t.watch,
	})
	t.end()
	if err != nil {
		return nil, err
	}
	result.demoTable(w)
	return result, nil
}

// teller prints the demo's time line: a row for each change, with the counts
// as they are when the next one comes.
type teller struct {
	w       io.Writer
	live    bool
	started bool
	row     Moment
}

// textWidth fits every step's text, and the row into 80 columns.
const textWidth = 43

func (t *teller) watch(m Moment) {
	if !t.started {
		t.started = true
		fmt.Fprintf(t.w, "\n%6s  %-*s %13s %13s\n%6s  %-*s %6s %6s %6s %6s\n", "", textWidth, "", "cheetah", "stateless",
			"time", textWidth, "what happens", "open", "broken", "open", "broken")
		t.row = Moment{Text: "connections begin"}
	}
	if m.Text != "" {
		t.end()
		t.row = m
	}
	t.row.Tallies = m.Tallies
	if t.live {
		fmt.Fprint(t.w, "\r", t.line())
	}
}

// end finishes the current row.
func (t *teller) end() {
	if !t.started || t.row.Tallies == nil {
		return
	}
	if t.live {
		fmt.Fprint(t.w, "\r")
	}
	fmt.Fprintln(t.w, t.line())
	t.row.Tallies = nil
}

func (t *teller) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%4.0f s  %-*s", t.row.At, textWidth, t.row.Text)
	for _, tally := range t.row.Tallies {
		fmt.Fprintf(&b, " %6d %6d", tally.Alive, tally.Broken)
	}
	return b.String()
}

func (r *Result) demoTable(w io.Writer) {
	fmt.Fprintf(w, "\nAfter %d changes (seed %d, kernel %s, %.0f s):\n\n%-34s", len(r.Timeline), r.Seed, r.Kernel, r.Seconds, "")
	row := func(name string, value func(RunTally) any) {
		fmt.Fprintf(w, "\n  %-32s", name)
		for _, run := range r.Runs {
			fmt.Fprintf(w, " %12v", value(run))
		}
	}
	for _, run := range r.Runs {
		fmt.Fprintf(w, " %12s", run.Scheme)
	}
	row("connections", func(t RunTally) any { return t.Connections })
	row("completed, every byte right", func(t RunTally) any { return t.Completed })
	row("lost with the crashed server", func(t RunTally) any { return t.LostWithServer })
	row("BROKEN", func(t RunTally) any { return t.Broken })
	fmt.Fprint(w, `

No balancer can save the connections of a crashed server; they count apart.
Next: bin/fairlead lab up (a lab to play in), bin/fairlead lab run churn (the
whole scenario, both IP versions; --scheme beamer and --scheme faild: servers
keep the state), and README.md, "On real machines" (a balancer, two servers).
`)
}
