package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
)

// historyVersion is a version as `history -o json` prints it.
type historyVersion struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	Changes []string  `json:"changes"`
	Digest  string    `json:"digest"`
}

func newHistoryCommand() *cobra.Command {
	var file, output string
	var last int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show who changed what, version by version",
		Long: `Lists the versions that the deployment's store has, the newest last: when each
was made, by whom, and what it changed. Needs a file with controllers or store.`,
		Example: "  fairlead history -f fairlead.yaml\n  fairlead history --last 5 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if last < 1 {
				return cli.Usagef("--last %d: must be 1 or more", last)
			}
			cfg, err := loadFile(cmd, file)
			if err != nil {
				return err
			}
			s, l, err := rollout.Open(cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			head, err := l.Head(ctx)
			if err != nil {
				return err
			}
			records, err := l.History(ctx, head.Version+1-min(uint64(last), head.Version))
			if err != nil {
				return err
			}
			return printHistory(cmd.OutOrStdout(), output, records)
		},
	}
	fileFlag(cmd, &file)
	cli.OutputFlag(cmd, &output)
	cmd.Flags().IntVar(&last, "last", 20, "how many versions")
	return cmd
}

func printHistory(w io.Writer, output string, records []ledger.Record) error {
	versions := []historyVersion{}
	for _, r := range records {
		versions = append(versions, historyVersion{r.Version, r.At, r.Who, append([]string{}, r.What...), r.Digest})
	}
	return cli.PrintAs(w, output, versions, func(w io.Writer) error {
		if len(versions) == 0 {
			_, err := fmt.Fprintln(w, "the store is empty; begin with `fairlead apply`")
			return err
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "VERSION\tAT\tWHO\tCHANGES")
		for _, v := range versions {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\n", v.Version, v.At.Local().Format(time.DateTime), v.Who, strings.Join(v.Changes, "; "))
		}
		return t.Flush()
	})
}
