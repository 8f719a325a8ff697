package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/tables"
)

// checkResult is what check prints as JSON.
type checkResult struct {
	File      string         `json:"file"`
	OK        bool           `json:"ok"`
	Balancers int            `json:"balancers"`
	Switches  int            `json:"switches"`
	Servers   int            `json:"servers"`
	VIPs      int            `json:"vips"`
	Problems  []checkProblem `json:"problems"`
}

type checkProblem struct {
	Line   int    `json:"line"` // from 1; 0: the file as a whole
	Column int    `json:"column"`
	Field  string `json:"field"`
	Value  string `json:"value"`
	Wrong  string `json:"wrong"`
	Remedy string `json:"remedy"`
}

func newCheckCommand() *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the file is right, and if not where and what would be",
		Long: `Reads the file as the daemons do and changes nothing. Each thing wrong is one
line: file:line:column: field: value: what is wrong; what would be right.
Exit status 0 if all is right, 1 if not.`,
		Example: "  fairlead check -f fairlead.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(file)
			if err == nil {
				err = cfg.CheckFiles()
			}
			if err == nil && !cfg.Bootstrap() {
				err = firstFits(cfg)
			}
			if err == nil {
				err = api.OwnFault(cfg.TLS, time.Now())
			}
			r := checkResult{File: file, OK: err == nil, Problems: []checkProblem{}}
			if err == nil {
				r.Balancers, r.Switches, r.Servers, r.VIPs = len(cfg.Balancers), len(cfg.Switches), len(cfg.Servers), len(cfg.VIPs)
			}
			var problems config.Problems
			if err != nil && !errors.As(err, &problems) {
				problems = config.Problems{{File: file, Wrong: err.Error()}}
			}
			for _, p := range problems {
				r.Problems = append(r.Problems, checkProblem{p.Line, p.Col, p.Field, p.Value, p.Wrong, p.Remedy})
			}
			printErr := cli.PrintAs(cmd.OutOrStdout(), output, r, func(w io.Writer) error {
				if err != nil {
					_, err := fmt.Fprintln(cmd.ErrOrStderr(), problems.Error())
					return err
				}
				if cfg.Bootstrap() {
					_, err := fmt.Fprintf(w, "%s is right: it says how to come to the store, which has the rest\n", file)
					return err
				}
				switches := ""
				if r.Switches > 0 {
					switches = fmt.Sprintf("switches %d, ", r.Switches)
				}
				_, err := fmt.Fprintf(w, "%s is right: balancers %d, %sservers %d, vips %d\n", file, r.Balancers, switches, r.Servers, r.VIPs)
				return err
			})
			if printErr == nil && err != nil {
				return cli.ErrSilent
			}
			return printErr
		},
	}
	fileFlag(cmd, &file)
	cli.OutputFlag(cmd, &output)
	return cmd
}

// firstFits computes what daemons that start from the file put in force.
func firstFits(cfg *config.Config) error {
	first, err := controller.First(cfg)
	if err != nil {
		return err
	}
	return tables.Fits(first, cfg.Limits)
}

// loadFile is config.Load for commands: every problem on a line of its own,
// as check prints them.
func loadFile(cmd *cobra.Command, file string) (*config.Config, error) {
	cfg, err := config.Load(file)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
		return nil, cli.ErrSilent
	}
	return cfg, nil
}
