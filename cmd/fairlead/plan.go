package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/tables"
)

// changeResult is what plan, apply and the verbs print as JSON.
type changeResult struct {
	// Daemons is false if none answered (plan alone).
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
}

type unanswered struct {
	Name  string `json:"name"`
	API   string `json:"api"`
	Error string `json:"error"`
}

func resultOf(ch *rollout.Change) changeResult {
	r := changeResult{Daemons: ch.Answered(), From: ch.From, To: ch.To, Unanswered: []unanswered{}, Refused: []string{},
		Changes: append([]string{}, ch.Lines...), Notes: append([]string{}, ch.Notes...)}
	for _, d := range ch.Silent {
		r.Unanswered = append(r.Unanswered, unanswered{d.Name, d.API, api.ErrorText(d.Err)})
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
func changeFlags(cmd *cobra.Command, o *rollout.Options) {
	cmd.Flags().BoolVar(&o.Force, "force", false, "go on although live connections may break, or daemons do not answer")
	cmd.Flags().StringSliceVar(&o.Without, "without", nil, "daemons that are gone for good, comma-separated: not asked, not waited for")
}

func newPlanCommand() *cobra.Command {
	var file, output string
	var o rollout.Options
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Show what apply would do",
		Long: `Asks every daemon that the file names what it has in force and what is live,
and shows the series of versions that 'fairlead apply' would hand out. Exit
status 1 if apply would be refused, with the reasons.`,
		Example: "  fairlead plan -f fairlead.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			c, done, err := coordinator(cmd, file)
			if err != nil {
				return err
			}
			defer done()
			ch, err := c.PlanFile(cmd.Context(), o)
			if err != nil {
				return refusedAs(cmd, output, ch, err)
			}
			return resultOf(ch).print(cmd, output, "nothing to do: the daemons have what "+file+" wants")
		},
	}
	fileFlag(cmd, &file)
	cli.OutputFlag(cmd, &output)
	changeFlags(cmd, &o)
	return cmd
}

// coordinator is who asks and tells all daemons of the file; done lets go of the
// store.
func coordinator(cmd *cobra.Command, file string) (c *rollout.Coordinator, done func(), err error) {
	cfg, err := loadFile(cmd, file)
	if err != nil {
		return nil, nil, err
	}
	return coordinatorOf(cfg)
}

func coordinatorOf(cfg *config.Config) (c *rollout.Coordinator, done func(), err error) {
	c = &rollout.Coordinator{
		Config: func() *config.Config { return cfg },
		Fits:   func(a *controller.Assignment) error { return tables.Fits(a, cfg.Limits) },
		Who:    operator(),
	}
	s, l, err := rollout.Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	c.Ledger = l
	return c, func() { _ = s.Close() }, nil
}

// operator is who runs this, for the history.
func operator() string {
	name := cmp.Or(os.Getenv("SUDO_USER"), "uid "+strconv.Itoa(os.Getuid()))
	if u, err := user.Current(); err == nil && os.Getenv("SUDO_USER") == "" {
		name = u.Username
	}
	host, _ := os.Hostname()
	return name + "@" + host
}

// refusedAs is refused, and what was found as JSON or YAML if that is asked
// for.
func refusedAs(cmd *cobra.Command, output string, ch *rollout.Change, err error) error {
	if ch == nil || output == "table" {
		return refused(cmd, err)
	}
	r := resultOf(ch)
	r.Refused = strings.Split(api.ErrorText(err), "\n")
	nothing := func(io.Writer) error { return nil }
	if err := cli.PrintAs(cmd.OutOrStdout(), output, r, nothing); err != nil {
		return err
	}
	return refused(cmd, err)
}

// refused prints the lines of a refusal, each on its own.
func refused(cmd *cobra.Command, err error) error {
	lines := strings.Split(api.ErrorText(err), "\n")
	if len(lines) == 1 {
		return errors.New(lines[0])
	}
	for _, line := range lines {
		fmt.Fprintln(cmd.ErrOrStderr(), "fairlead:", line)
	}
	return cli.ErrSilent
}
