package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
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
	var c control
	var output string
	var last uint32
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show who changed what, version by version",
		Long: `Lists the versions that the deployment's store has, the newest last: when each
was made, by whom, and what it changed. Takes the role view.`,
		Example: "  fairlead history -f fairlead.yaml\n  fairlead history --last 5 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if last < 1 || last > 1000 {
				return cli.Usagef("--last %d: must be 1 to 1000", last)
			}
			resp, err := askControl(&c, cmd, lookTimeout, func(ctx context.Context, c controlClient) (*connect.Response[fairleadv1.GetHistoryResponse], error) {
				return c.GetHistory(ctx, connect.NewRequest(&fairleadv1.GetHistoryRequest{Last: last}))
			})
			if err != nil {
				return refused(err)
			}
			return printHistory(cmd.OutOrStdout(), output, resp.Versions)
		},
	}
	c.flags(cmd)
	cli.OutputFlag(cmd, &output)
	cmd.Flags().Uint32Var(&last, "last", 20, "how many versions")
	return cmd
}

func printHistory(w io.Writer, output string, records []*fairleadv1.VersionRecord) error {
	versions := []historyVersion{}
	for _, r := range records {
		versions = append(versions, historyVersion{r.Version, time.UnixMilli(r.AtUnixMs).UTC(), r.Who, append([]string{}, r.Changes...), r.Digest})
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

// versionArgument is a version's number.
func versionArgument(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n == 0 {
		return 0, cli.Usagef("version %s: must be a number of `fairlead history`", text)
	}
	return n, nil
}
