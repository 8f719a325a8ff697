package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

// changeResult is what plan, apply and the verbs print as JSON.
type changeResult struct {
	// Daemons is false if none answered.
	Daemons bool `json:"daemons"`
	// From and To are assignment versions; the same if nothing was to do.
	From       uint64       `json:"from"`
	To         uint64       `json:"to"`
	Changes    []string     `json:"changes"`
	Notes      []string     `json:"notes"`
	Unanswered []unanswered `json:"unanswered"`
	// Refused is why plan or apply goes no further (exit status 1), a line
	// each; empty if it does.
	Refused []string `json:"refused"`
	// Diff is how the configuration differs from the one before, line by line.
	Diff []string `json:"diff"`

	planned string // the file of a plan: people are shown how it differs; "": it was done
}

type unanswered struct {
	Name  string `json:"name"`
	API   string `json:"api"`
	Error string `json:"error"`
}

func resultOf(ch *fairleadv1.ChangeResponse) changeResult {
	r := changeResult{Daemons: ch.Answered, From: ch.FromVersion, To: ch.Version, Unanswered: []unanswered{}, Refused: append([]string{}, ch.Refused...),
		Changes: append([]string{}, ch.Changes...), Notes: append([]string{}, ch.Notes...), Diff: append([]string{}, ch.Diff...)}
	for _, u := range ch.Unanswered {
		r.Unanswered = append(r.Unanswered, unanswered{u.Name, u.Api, u.Error})
	}
	return r
}

// print is the human form: changes on stdout, who was left out on stderr.
func (r changeResult) print(cmd *cobra.Command, output, nothing string) error {
	return cli.PrintAs(cmd.OutOrStdout(), output, r, func(w io.Writer) error {
		for _, u := range r.Unanswered {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s does not answer (%s): it gets this when it is back, and if its programs run, they go by what they have until then\n", u.Name, u.Error)
		}
		for _, note := range r.Notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
		}
		if r.planned != "" && len(r.Diff) > 0 {
			fmt.Fprintf(w, "--- the configuration in the store\n+++ %s\n%s\n", r.planned, strings.Join(r.Diff, "\n"))
		}
		if r.planned != "" && r.From > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: planned on version %[1]d; `fairlead apply --expect %[1]d` is refused if another change comes first\n", r.From)
		}
		if len(r.Refused) > 0 {
			return nil // said below
		}
		if len(r.Changes) == 0 && r.To > r.From {
			_, err := fmt.Fprintf(w, "version %d gives all daemons one assignment; nothing else is to do\n", r.To)
			return err
		}
		if len(r.Changes) == 0 {
			_, err := fmt.Fprintf(w, "%s (version %d)\n", nothing, r.To)
			return err
		}
		_, err := fmt.Fprintln(w, strings.Join(r.Changes, "\n"))
		return err
	})
}

// changeFlags adds what every change has.
func changeFlags(cmd *cobra.Command, o *options) {
	cmd.Flags().BoolVar(&o.Force, "force", false, "go on although live connections may break, nobody would take new ones, or daemons do not answer (takes the role administer)")
	cmd.Flags().StringSliceVar(&o.Without, "without", nil, "daemons that are gone for good, comma-separated: not asked, not waited for (takes the role administer)")
}

func newPlanCommand() *cobra.Command {
	v := verb{planned: true}
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do",
		Long: `Hands the file to a controller, which asks daemons what they have in force and
what is live, and shows the series of versions that 'fairlead apply' would make. Exit
status 1 if apply would be refused, with the reasons. Takes the role view.`,
		Example: "  fairlead plan -f fairlead.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.runFile(cmd, func(ctx context.Context, c controlClient, text string) (*changed, error) {
				return c.Plan(ctx, connect.NewRequest(&fairleadv1.PlanRequest{Text: text, File: v.called(), Force: v.options.Force, Without: v.options.Without}))
			})
		},
	}
	v.flags(cmd)
	return cmd
}

// refusedAs is refused, and JSON or YAML if that is asked for.
func refusedAs(cmd *cobra.Command, output string, err error) error {
	if coded := (*connect.Error)(nil); output == "table" || !errors.As(err, &coded) {
		return refused(err)
	}
	r := resultOf(&fairleadv1.ChangeResponse{Refused: strings.Split(api.ErrorText(err), "\n")})
	if err := cli.PrintAs(cmd.OutOrStdout(), output, r, nil); err != nil {
		return err
	}
	return refused(err)
}

// refused is an error of the API's in people's words; others stay as they are.
func refused(err error) error {
	if coded := (*connect.Error)(nil); !errors.As(err, &coded) {
		return err
	}
	return errors.New(api.ErrorText(err))
}
