package lab

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// judgeAttacks says what is not as it must be: with guards nothing may come of
// an attack, without them something must come of those that guards are for.
func (r *runner) judgeAttacks() (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, run := range r.result.Runs {
		if run.Completed+run.Broken+run.LostWithServer != run.Connections || run.Connections < r.o.Scale.Connections {
			say("%s: %d connections, of which %d completed, broke or were lost, must be %d and all of them", run.Name(), run.Connections,
				run.Completed+run.Broken+run.LostWithServer, r.o.Scale.Connections)
		}
	}
	steps, broken := attackSteps(), 0
	for _, a := range r.result.Attacks {
		broken += a.broken()
		did := a.succeeded()
		s := steps[slices.IndexFunc(steps, func(s attackStep) bool { return s.name == a.Name })]
		switch must := slices.Contains(s.proves, a.Scheme); {
		case a.Packets == 0:
			say("attack %s on %s sent nothing, so it proves nothing", a.Name, a.Scheme)
		case !r.o.WithoutGuards && did != "":
			say("attack %s on %s %s, must do nothing", a.Name, a.Scheme, did)
		case r.o.WithoutGuards && must && did == "":
			say("attack %s on %s did nothing without guards, so it proves nothing about them", a.Name, a.Scheme)
		}
	}
	for _, run := range r.result.Runs {
		if !r.o.WithoutGuards && run.Broken > 0 && broken == 0 {
			say("%s: %d connections broken after the attacks, must be 0", run.Name(), run.Broken)
		}
	}
	return wrong
}

// printAttacks tells what attacks did.
func (r *Result) printAttacks(w io.Writer) error {
	if len(r.Attacks) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nscheme\tattack\tpackets\ts\tbroken\tgenuine errors arrived\tchanged")
	for _, a := range r.Attacks {
		genuine := "-"
		if a.Genuine > 0 {
			genuine = fmt.Sprintf("%d of %d", a.Arrived, a.Genuine)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%.1f\t%d\t%s\t%d\n", a.Scheme, a.Name, a.Packets, a.Seconds, a.broken(), genuine, len(a.Found))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, a := range r.Attacks {
		for _, f := range a.Found {
			fmt.Fprintf(w, "%s, %s: %s\n", a.Scheme, a.Name, f)
		}
	}
	return nil
}
