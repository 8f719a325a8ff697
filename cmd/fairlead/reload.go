package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
)

// reloadResult is what reload prints as JSON.
type reloadResult struct {
	Daemons []reloadedDaemon `json:"daemons"`
}

type reloadedDaemon struct {
	Name    string   `json:"name"`
	Role    string   `json:"role"`
	API     string   `json:"api"`
	Changed []string `json:"changed"` // it goes by this from now on
	Restart []string `json:"restart"` // this takes a restart
	Refused []string `json:"refused"` // this cannot be used
	Notes   []string `json:"notes"`   // what people should know beside it
	Error   string   `json:"error"`   // nothing was reloaded, or nobody answered; empty: neither
}

func newReloadCommand() *cobra.Command {
	var c control
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "reload [NAME...]",
		Short: "Have daemons read their own file and certificates again",
		Long: `Has the balancers, agents, switches and controllers of the deployment, or those named,
read again what is their machine's own: the file that each was started with (its
bootstrap), its certificates, and the fabric's file. What is wanted of the deployment
needs none of this: 'fairlead apply' brings it everywhere.

Each says what it goes by from now on, what takes a restart, and what it cannot use;
of that, what was read before stays. SIGHUP does the same, and the log has the answer.
Exit status 1 if one does not answer or cannot use something. Takes the role
administer.`,
		Example: "  fairlead reload\n  fairlead reload lb1 c1 -o json",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			daemons, t, err := c.reloadable(cmd, names, timeout)
			if err != nil {
				return err
			}
			r := reloadResult{reloadAll(cmd.Context(), daemons, t, timeout)}
			if err := cli.PrintAs(cmd.OutOrStdout(), output, r, r.table); err != nil {
				return err
			}
			if slices.ContainsFunc(r.Daemons, func(d reloadedDaemon) bool { return d.Error != "" || len(d.Refused) > 0 }) {
				return cli.ErrSilent
			}
			return nil
		},
	}
	fileFlag(cmd, &c.file)
	cmd.Flags().StringVar(&c.certs, "certs", "", "folder with your own ca.pem, cert.pem and key.pem (default: $"+certsVariable+", else what the file's tls names)")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for each daemon")
	cli.OutputFlag(cmd, &output)
	return cmd
}

// reloadable are the daemons called names, or all, and how to come to them.
func (c *control) reloadable(cmd *cobra.Command, names []string, timeout time.Duration) (chosen []config.Self, t config.TLS, err error) {
	cfg, note, err := deployed(cmd, c, timeout)
	if err != nil {
		return nil, t, err
	}
	if note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
	t, own := c.own()
	if !own {
		t = cfg.TLS
	}
	all := cfg.Daemons()
	for _, s := range cfg.Selves(config.RoleController) {
		// On its own machine root needs no certificate.
		if at := here([]config.Controller{*s.Controller}); !own && len(at) == 1 {
			s.API = at[0].API
		}
		all = append(all, s)
	}
	if len(names) == 0 {
		return all, t, nil
	}
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
		if slices.Contains(names, s.Name) {
			chosen = append(chosen, s)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, t, fmt.Errorf("%s: no such daemon; there are %s", n, strings.Join(known, ", "))
		}
	}
	return chosen, t, nil
}

// reloadAll tells them all at once.
func reloadAll(ctx context.Context, daemons []config.Self, t config.TLS, timeout time.Duration) []reloadedDaemon {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all := make([]reloadedDaemon, len(daemons))
	var wg sync.WaitGroup
	for i, s := range daemons {
		all[i] = reloadedDaemon{Name: s.Name, Role: string(s.Role), API: s.API, Changed: []string{}, Restart: []string{}, Refused: []string{}, Notes: []string{}}
		wg.Go(func() {
			r, err := reloadOne(ctx, s, t)
			if err != nil {
				all[i].Error = api.ErrorText(err)
				return
			}
			all[i].Changed, all[i].Restart = append(all[i].Changed, r.Changed...), append(all[i].Restart, r.Restart...)
			all[i].Refused, all[i].Notes = append(all[i].Refused, r.Refused...), append(all[i].Notes, r.Notes...)
		})
	}
	wg.Wait()
	return all
}

func reloadOne(ctx context.Context, s config.Self, t config.TLS) (*fairleadv1.ReloadResponse, error) {
	var resp *connect.Response[fairleadv1.ReloadResponse]
	req := connect.NewRequest(&fairleadv1.ReloadRequest{})
	if s.Role == config.RoleController {
		client, err := api.DialControl(s.API, t)
		if err != nil {
			return nil, err
		}
		if resp, err = client.Reload(ctx, req); err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	client, err := api.Dial(s.API, t)
	if err != nil {
		return nil, err
	}
	if resp, err = client.Reload(ctx, req); err != nil {
		return nil, err
	}
	return resp.Msg, nil
}

func (r reloadResult) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DAEMON\tROLE\tSAYS")
	for _, d := range r.Daemons {
		lines := slices.Clone(d.Changed)
		for i := range lines {
			lines[i] = "goes by " + lines[i]
		}
		lines = slices.Concat(lines, d.Restart, d.Refused, d.Notes)
		if d.Error != "" {
			lines = append(lines, d.Error)
		}
		if len(lines) == 0 {
			lines = []string{"nothing has changed"}
		}
		for i, line := range lines {
			name, role := d.Name, d.Role
			if i > 0 {
				name, role = "", ""
			}
			fmt.Fprintf(t, "%s\t%s\t%s\n", name, role, line)
		}
	}
	return t.Flush()
}
