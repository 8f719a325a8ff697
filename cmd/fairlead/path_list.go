//go:build !ctl

package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newPathListCommand() *cobra.Command {
	var f pathFlags
	var first, limit uint32
	cmd := &cobra.Command{
		Use:   "list A B",
		Short: "List the paths of equal cost between two places",
		Long: `List all shortest paths from A to B, by the costs of the file's links, with the
choices that routers on the way make: router:port, in the order of the way.
Where a port has no number or the router is plain, nobody can choose (?).`,
		Example: `  fairlead path list h1 h2
  fairlead path list h1 10.1.2.2 -o json
  fairlead path list h1 h2 --first 1000 --limit 50`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.list(cmd, &fairleadv1.ListPathsRequest{From: args[0], To: args[1], First: first, Limit: limit})
		},
	}
	f.add(cmd)
	addWindow(cmd, &first, &limit)
	return cmd
}

// addWindow adds the flags that say which paths of many are shown.
func addWindow(cmd *cobra.Command, first, limit *uint32) {
	cmd.Flags().Uint32Var(first, "first", 0, "number of the first path shown")
	cmd.Flags().Uint32Var(limit, "limit", 1000, "how many are shown, 100,000 at most")
}

func newPathFindCommand() *cobra.Command {
	var f pathFlags
	var r ruleFlags
	var first, limit uint32
	cmd := &cobra.Command{
		Use:   "find A B --via …",
		Short: "Find the paths that pass, or do not pass, routers or links",
		Long: `Find those of the paths from A to B that pass what --via names, and nothing of
what --avoid names. Numbers of paths are among those that are found.`,
		Example: `  fairlead path find h1 h2 --via spine2
  fairlead path find h1 h2 --via leaf1,spine1 --avoid leaf1:2-spine1:0`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(r.via)+len(r.avoid) == 0 {
				return cli.Usagef("give --via or --avoid; `fairlead path list` lists all paths")
			}
			return f.list(cmd, &fairleadv1.ListPathsRequest{From: args[0], To: args[1], Rules: r.rules(), First: first, Limit: limit})
		},
	}
	f.add(cmd)
	r.add(cmd)
	addWindow(cmd, &first, &limit)
	return cmd
}

// list prints paths.
func (f *pathFlags) list(cmd *cobra.Command, q *fairleadv1.ListPathsRequest) error {
	if err := cli.CheckOutput(f.output); err != nil {
		return err
	}
	m, err := query(cmd.Context(), f, f.look, fairleadv1connect.PathsClient.ListPaths, q)
	if err != nil {
		return err
	}
	return f.print(cmd.OutOrStdout(), m, func(t *tabwriter.Writer) {
		fmt.Fprintln(t, "PATH\tWAY\tCHOICES")
		for _, p := range m.Paths {
			fmt.Fprintf(t, "%d\t%s\t%s\n", p.Number, way(p), choices(p))
		}
		if shown := uint32(len(m.Paths)); shown < m.Total {
			fmt.Fprintf(t, "%d of %d paths; --first and --limit show others\n", shown, m.Total)
		}
	})
}
