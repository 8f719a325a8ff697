//go:build !ctl

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

// defaultFabric is the fabric's file if no flag names another.
const defaultFabric = "/etc/fairlead/fabric.yaml"

func newPathCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Find paths through the fabric, steer flows onto them, probe them",
		Long: `A fabric's routers ('fairlead router') read from a packet's own fields which of
their equal next hops it shall take. These commands find paths between two
places of the fabric, say which ports or flow label lead over a path, and
which path a flow takes.

They go by the fabric's file (fabric.yaml). With --service they ask the path
service ('fairlead path serve') instead; what places flows needs it.

A place is a router's or host's name, or an address. docs/path.md has more.`,
		Example: `  fairlead path list h1 h2
  fairlead path ports h1 h2 --via spine2 --dst-port 443
  fairlead path of 'tcp 10.1.1.2:40001 > 10.1.2.2:443'`,
		Args: cli.CommandsAlone,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Daemons:"},
		&cobra.Group{ID: groupShow, Title: "Commands that look:"},
		&cobra.Group{ID: groupChange, Title: "Commands that change:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			cmd.AddCommand(c)
		}
	}
	add(groupRun, newPathServeCommand(), newPathAnswerCommand(), newPathMeasureCommand())
	add(groupShow, newPathListCommand(), newPathFindCommand(), newPathPortsCommand(), newPathOfCommand(),
		newPathFlowsCommand(), newPathLoadCommand(), newPathProbeCommand(), newPathImportCommand(), newPathLearnCommand())
	add(groupChange, newPathScheduleCommand(), newPathReleaseCommand(), newPathReportCommand())
	return cmd
}

// pathFlags are what commands that ask about paths have in common.
type pathFlags struct {
	file, service, output string
}

func (f *pathFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "file", "f", defaultFabric, "the fabric's file")
	cmd.Flags().StringVar(&f.service, "service", "", "ask the path service at this unix:/path, https://address:port or http://127.0.0.1:port")
	cli.OutputFlag(cmd, &f.output)
}

// look is who answers questions about paths: the file alone, or the service
// that --service names.
func (f *pathFlags) look() (fairleadv1connect.PathsClient, error) {
	if f.service != "" {
		return f.serving()
	}
	fabric, err := topology.Read(f.file)
	if err != nil {
		return nil, err
	}
	return paths.Local(fabric)
}

// serving is the path service: that of --service, else that of the file.
func (f *pathFlags) serving() (fairleadv1connect.PathsClient, error) {
	endpoint, files := f.service, config.TLS{}
	if endpoint == "" || strings.HasPrefix(endpoint, "https://") {
		fabric, err := topology.Read(f.file)
		if err != nil {
			return nil, err
		}
		files = fabric.TLS
		if endpoint == "" {
			endpoint = fabric.Service.API
		}
	}
	if err := topology.CheckAPI(endpoint, true); err != nil {
		return nil, cli.Usagef("--service %s: %w; write unix:/path, https://address:port or http://127.0.0.1:port", endpoint, err)
	}
	return api.DialPaths(endpoint, files)
}

// ask calls the API, and makes its errors a command's.
func ask[Q, A any](ctx context.Context, f *pathFlags, call func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	resp, err := call(ctx, connect.NewRequest(q))
	if err == nil {
		return resp.Msg, nil
	}
	c := (*connect.Error)(nil)
	if !errors.As(err, &c) {
		return nil, err
	}
	if c.Code() == connect.CodeUnavailable {
		return nil, fmt.Errorf("the path service does not answer: %s; start `fairlead path serve -f %s`, or name it with --service", c.Message(), f.file)
	}
	return nil, errors.New(c.Message())
}

// query asks whom who names.
func query[Q, A any](ctx context.Context, f *pathFlags, who func() (fairleadv1connect.PathsClient, error), call pathCall[Q, A], q *Q) (*A, error) {
	c, err := who()
	if err != nil {
		return nil, err
	}
	return ask(ctx, f, func(ctx context.Context, r *connect.Request[Q]) (*connect.Response[A], error) { return call(c, ctx, r) }, q)
}

// pathCall is a method of the API.
type pathCall[Q, A any] = func(fairleadv1connect.PathsClient, context.Context, *connect.Request[Q]) (*connect.Response[A], error)

// print prints an answer.
func (f *pathFlags) print(w io.Writer, m proto.Message, table func(*tabwriter.Writer)) error {
	return cli.PrintAs(w, f.output, plainMessage(m.ProtoReflect()), func(w io.Writer) error {
		t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		table(t)
		return t.Flush()
	})
}

// ruleFlags narrow the paths.
type ruleFlags struct{ via, avoid []string }

func (r *ruleFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&r.via, "via", nil, "routers that the path passes, in this order, and links (such as leaf1:0-spine1:3)")
	cmd.Flags().StringSliceVar(&r.avoid, "avoid", nil, "routers and links that it does not pass")
}

func (r *ruleFlags) rules() *fairleadv1.PathRules {
	return &fairleadv1.PathRules{Via: r.via, Avoid: r.avoid}
}

// way is a path's nodes in a line.
func way(p *fairleadv1.FabricPath) string {
	if len(p.Hops) == 0 {
		return p.From
	}
	names := []string{p.Hops[0].From}
	for _, h := range p.Hops {
		names = append(names, h.To)
	}
	return strings.Join(names, " ")
}

// choices are a path's steps in a line: router:port.
func choices(p *fairleadv1.FabricPath) string {
	var out []string
	for _, s := range p.Steps {
		if s.Port < 0 {
			out = append(out, s.Router+":?")
		} else {
			out = append(out, fmt.Sprintf("%s:%d", s.Router, s.Port))
		}
	}
	if out == nil {
		return "-"
	}
	return strings.Join(out, " ")
}
