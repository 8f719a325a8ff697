package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

// eventLine is an event as `events -o json` prints it, a line each.
type eventLine struct {
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"` // agreed, in_force, daemon_came, daemon_went, daemon_refused, leader, controller_warned
	Version uint64    `json:"version"`
	Daemon  string    `json:"daemon"`
	Who     string    `json:"who"`
	Text    []string  `json:"text"`
}

func newEventsCommand() *cobra.Command {
	var c control
	var output string
	var follow bool
	var after uint64
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happened, and with --follow what happens",
		Long: `Versions as they are agreed on and come into force, daemons as they come and go, who
leads, and what controllers warn of, one line each. With --follow it goes on, at another controller if one stops,
until Ctrl-C. Takes the role view.`,
		Example: "  fairlead events\n  fairlead events --follow -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return cli.Usagef("--output %q: must be table or json: events are printed one by one", output)
			}
			all, err := c.controllers(cmd)
			if err != nil {
				return err
			}
			w := &eventWriter{control: &c, out: cmd.OutOrStdout(), output: output, after: after}
			said := "" // no note is repeated while it is so
			for {
				err := w.watch(cmd.Context(), all, follow)
				if cmd.Context().Err() != nil {
					return nil // somebody has seen enough
				}
				if err == nil && !follow || err != nil && !w.goesOn(err) {
					return refusedOrNil(err)
				}
				if err != nil && api.ErrorText(err) != said {
					said = api.ErrorText(err)
					fmt.Fprintln(cmd.ErrOrStderr(), "note:", said+"; trying on")
				}
				if !sleep(cmd.Context(), time.Second) {
					return nil
				}
			}
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "how to print: table, or json, a line each")
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what happens from now on")
	cmd.Flags().Uint64Var(&after, "after", 0, "begin after this version (default: with the last 20)")
	return cmd
}

func refusedOrNil(err error) error {
	if err == nil {
		return nil
	}
	return refused(err)
}

// eventWriter prints events, and knows where it is.
type eventWriter struct {
	control *control
	out     io.Writer
	output  string
	after   uint64 // the newest version that was printed
	began   bool
	told    told
	unsaid  error // out takes nothing more
}

// goesOn: what was watched may be watched at another controller, or later.
func (w *eventWriter) goesOn(err error) bool {
	code := connect.CodeOf(err)
	return w.began && w.unsaid == nil && (code == connect.CodeUnavailable || code == connect.CodeResourceExhausted || code == connect.CodeUnknown || code == connect.CodeInternal)
}

// cut: the stream ended in its middle, as when its controller is killed.
func cut(err error) bool { return err != nil && !connect.IsWireError(err) }

// watch prints what the first controller that answers tells.
func (w *eventWriter) watch(ctx context.Context, all []namedControl, follow bool) error {
	var away []string
	for _, c := range all {
		w.told.stream++
		began := w.began
		err := w.watchAt(ctx, c.controlClient, follow)
		if w.unsaid != nil {
			return w.unsaid
		}
		if cut(err) && (began || w.began) && connect.CodeOf(err) != connect.CodeUnavailable {
			return connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s went away", c.name))
		}
		if connect.CodeOf(err) == connect.CodeUnavailable && err != nil {
			away = append(away, c.name+": "+api.ErrorText(err))
			continue
		}
		return err
	}
	return connect.NewError(connect.CodeUnavailable, w.control.silent(away))
}

func (w *eventWriter) watchAt(ctx context.Context, c controlClient, follow bool) error {
	stream, err := c.WatchEvents(ctx, connect.NewRequest(&fairleadv1.WatchEventsRequest{AfterVersion: w.after, Follow: follow}))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		w.began = true
		if w.unsaid = w.print(stream.Msg()); w.unsaid != nil {
			return w.unsaid
		}
	}
	return stream.Err()
}

func (w *eventWriter) print(e *fairleadv1.Event) error {
	line := eventLine{At: time.UnixMilli(e.AtUnixMs).UTC(), Kind: strings.ToLower(strings.TrimPrefix(e.Kind.String(), "KIND_")),
		Version: e.Version, Daemon: e.Daemon, Who: e.Who, Text: append([]string{}, e.Text...)}
	if e.Kind == fairleadv1.Event_KIND_AGREED {
		w.after = max(w.after, e.Version)
	}
	if !w.told.news(e) {
		return nil
	}
	if w.output == "json" {
		return json.NewEncoder(w.out).Encode(line)
	}
	text := cli.LegibleText(strings.Join(line.Text, "; "))
	if e.Kind == fairleadv1.Event_KIND_AGREED {
		text = fmt.Sprintf("version %d by %s: %s", e.Version, e.Who, text)
	}
	_, err := fmt.Fprintf(w.out, "%s  %s\n", line.At.Local().Format(time.DateTime), text)
	if err != nil {
		return errors.Join(err, cli.ErrSilent)
	}
	return nil
}

// told is what was printed of how things are: each stream begins with that, and who follows
// at another controller has read it.
type told struct {
	stream  int // which this is
	here    map[string]bool
	refused map[string]string
	warned  map[string]int // in which stream, by text
	leader  string
	inForce uint64
}

// news says whether e tells more than what was printed, and remembers it.
func (t *told) news(e *fairleadv1.Event) bool {
	if t.here == nil {
		t.here, t.refused, t.warned = map[string]bool{}, map[string]string{}, map[string]int{}
	}
	text := strings.Join(e.Text, "\n")
	switch e.Kind {
	case fairleadv1.Event_KIND_DAEMON_CAME:
		was := t.here[e.Daemon]
		t.here[e.Daemon] = true
		return !was
	case fairleadv1.Event_KIND_DAEMON_WENT:
		t.here[e.Daemon] = false
	case fairleadv1.Event_KIND_DAEMON_REFUSED: // it tries again and again
		was := t.refused[e.Daemon]
		t.refused[e.Daemon] = text
		return was != text
	case fairleadv1.Event_KIND_CONTROLLER_WARNED:
		before := t.warned[text]
		t.warned[text] = t.stream
		return before == 0 || before == t.stream
	case fairleadv1.Event_KIND_LEADER:
		was := t.leader
		t.leader = e.Daemon
		return was != e.Daemon
	case fairleadv1.Event_KIND_IN_FORCE:
		was := t.inForce
		t.inForce = max(was, e.Version)
		return e.Version > was
	}
	return true
}
