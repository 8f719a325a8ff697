package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show the desired state, or who makes changes",
		Args:  cli.CommandsAlone,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGetConfigCommand(), newGetControllersCommand())
	return cmd
}

func newGetConfigCommand() *cobra.Command {
	var c control
	var output string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the file that would give what is wanted now",
		Long: `Prints the desired state as the store has it, verbs included: a file that
'fairlead apply' would find nothing to do with. Secrets are not in it. Takes the
role view.

With -o json or yaml its objects are printed as they are written, without comments.`,
		Example: "  fairlead get config >fairlead.yaml\n  fairlead get config -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			resp, err := askControl(&c, cmd, lookTimeout, func(ctx context.Context, c controlClient) (*connect.Response[fairleadv1.GetConfigResponse], error) {
				return c.GetConfig(ctx, connect.NewRequest(&fairleadv1.GetConfigRequest{}))
			})
			if err != nil {
				return refused(err)
			}
			var objects map[string]any
			if err := yaml.Unmarshal([]byte(resp.Text), &objects); err != nil {
				return fmt.Errorf("the configuration of version %d cannot be read: %w", resp.Version, err)
			}
			return cli.PrintAs(cmd.OutOrStdout(), output, objects, func(w io.Writer) error {
				_, err := io.WriteString(w, resp.Text)
				return err
			})
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "how to print: table (the file as it is), json or yaml")
	return cmd
}

// controllersResult is what get controllers prints as JSON.
type controllersResult struct {
	Version     uint64             `json:"version"`
	InForce     bool               `json:"in_force"`
	Digest      string             `json:"digest"`
	Controllers []controllerResult `json:"controllers"`
}

type controllerResult struct {
	Name       string    `json:"name"`
	Alive      bool      `json:"alive"`
	Leads      bool      `json:"leads"`
	API        string    `json:"api"`
	Program    string    `json:"program"`
	Started    time.Time `json:"started"`
	StoreBytes uint64    `json:"store_bytes"`
	Warnings   []string  `json:"warnings"`
}

func newGetControllersCommand() *cobra.Command {
	var c control
	var output string
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "Show which controllers live, and which of them leads",
		Long: `Asks one controller which of them the store hears, which one leads, and whether
every living daemon goes by the newest version. Exit status 1 if a controller of the
file is gone. Takes the role view.`,
		Example: "  fairlead get controllers",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			resp, err := askControl(&c, cmd, lookTimeout, func(ctx context.Context, c controlClient) (*connect.Response[fairleadv1.GetControllersResponse], error) {
				return c.GetControllers(ctx, connect.NewRequest(&fairleadv1.GetControllersRequest{}))
			})
			if err != nil {
				return refused(err)
			}
			return printControllers(cmd, output, resp)
		},
	}
	c.flags(cmd)
	cli.OutputFlag(cmd, &output)
	return cmd
}

func controllersOf(resp *fairleadv1.GetControllersResponse) controllersResult {
	r := controllersResult{Version: resp.Version, InForce: resp.InForce, Digest: resp.Digest, Controllers: []controllerResult{}}
	for _, c := range resp.Controllers {
		one := controllerResult{Name: c.Name, Alive: c.Alive, Leads: c.Leads, API: c.Api, Program: c.Program, StoreBytes: c.StoreBytes, Warnings: append([]string{}, c.Warnings...)}
		if c.StartedUnixMs != 0 {
			one.Started = time.UnixMilli(c.StartedUnixMs).UTC()
		}
		r.Controllers = append(r.Controllers, one)
	}
	return r
}

// table is a line a controller; w aligns.
func (r controllersResult) table(w io.Writer) {
	fmt.Fprintln(w, "CONTROLLER\tSTATE\tSTARTED\tSTORE\tVERSION\tAPI")
	for _, c := range r.Controllers {
		state, started, size := "gone", "-", "-"
		if c.Alive {
			state, started = "there", c.Started.Local().Format(time.DateTime)
		}
		if c.Leads {
			state = "leads"
		}
		if c.StoreBytes > 0 {
			size = fmt.Sprintf("%.1f MiB", float64(c.StoreBytes)/(1<<20))
		}
		fmt.Fprintln(w, strings.Join([]string{c.Name, state, started, size, c.Program, c.API}, "\t"))
	}
}

// force says whether the newest version is.
func (r controllersResult) force() string {
	switch {
	case r.Version == 0:
		return "version 0: the store is empty; begin with `fairlead apply`"
	case !r.InForce:
		return fmt.Sprintf("version %d: not in force everywhere yet", r.Version)
	}
	return fmt.Sprintf("version %d: in force at every daemon that lives", r.Version)
}

func printControllers(cmd *cobra.Command, output string, resp *fairleadv1.GetControllersResponse) error {
	r := controllersOf(resp)
	err := cli.PrintAs(cmd.OutOrStdout(), output, r, func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		r.table(t)
		if err := t.Flush(); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w, r.force())
		for _, c := range r.Controllers {
			for _, warning := range c.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", c.Name, warning)
			}
		}
		return err
	})
	if err == nil && slices.ContainsFunc(r.Controllers, func(c controllerResult) bool { return !c.Alive }) {
		return cli.ErrSilent
	}
	return err
}
