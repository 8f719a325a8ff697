package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/fabric/topology"
)

// runFolder is where daemons' sockets are unless the file says otherwise.
const runFolder = "/run/fairlead"

// answer is one daemon's status, or why there is none.
type answer struct {
	name, role, api string
	client          fairleadv1connect.FairleadClient
	status          *fairleadv1.GetStatusResponse
	err             error
}

func newStatusCommand() *cobra.Command {
	var fabric, output, name string
	var timeout time.Duration
	c := control{looks: true}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show VIPs, servers, slots, states, health and counters of all daemons",
		Long: `Ask every daemon that the file names for its status and show it together: VIPs
with their servers, slots, states, health, next hops and counters; the
assignment's version at every daemon, and whether it is the store's; the
controllers, and which of them leads; where programs and maps are pinned. A file
that says only how to come to the store is enough: what is in it then says who is
asked.

Without -f and without /etc/fairlead/fairlead.yaml the daemons of this machine
are asked (sockets in /run/fairlead). With --fabric the routers of a fabric.yaml
are: their selector, next hops with port numbers, routes and counters.

From a machine with neither file nor secret: --api names a controller, which says
what there is, and --certs the folder of a certificate with the role view. A file
that is given needs no secret either.`,
		Example: "  fairlead status -f fairlead.yaml\n  fairlead status -f fairlead.yaml --name lb1 -o json\n  fairlead status --fabric fabric.yaml\n  fairlead status --api https://10.0.0.1:7444 --certs ~/ann",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" && output != "yaml" {
				return cli.Usagef("--output %q: must be table, json or yaml", output)
			}
			if fabric != "" && cmd.Flags().Changed("file") {
				return cli.Usagef("--fabric asks routers, --file the other daemons: give one of them")
			}
			stored := make(chan *storeView, 1)
			ask := func() ([]answer, error) {
				if fabric != "" {
					return askRouters(cmd.Context(), fabric, name, timeout)
				}
				return askAll(cmd, &c, name, timeout)
			}
			go func() {
				if _, err := c.load(); fabric != "" || name != "" || err != nil && c.endpoint == "" {
					stored <- nil
					return
				}
				stored <- askStore(cmd, &c, timeout)
			}()
			answers, err := ask()
			store := <-stored
			if err != nil {
				return err
			}
			err = cli.PrintAs(cmd.OutOrStdout(), output, statusValue(answers, store), func(w io.Writer) error {
				return statusTable(w, answers, inForce(cmd.Context(), answers, timeout), store)
			})
			if err != nil {
				return err
			}
			for _, a := range answers {
				if a.err == nil {
					return nil
				}
			}
			if errors.Is(answers[0].err, os.ErrPermission) {
				return fmt.Errorf("%s: %s; only root may ask: sudo fairlead status", answers[0].name, api.ErrorText(answers[0].err))
			}
			for _, a := range answers {
				switch { // it runs, or somebody there does
				case !connect.IsWireError(a.err):
				case connect.CodeOf(a.err) == connect.CodeUnavailable:
					return fmt.Errorf("no daemon serves yet (%s: %s)", a.name, api.ErrorText(a.err))
				default:
					return fmt.Errorf("no daemon says how it stands (%s: %s)", a.name, api.ErrorText(a.err))
				}
			}
			return fmt.Errorf("no daemon answered (%s: %s); start it with fairlead lb, host, switch or router, or see its log", answers[0].name, api.ErrorText(answers[0].err))
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&fabric, "fabric", "", "ask the routers of this fabric.yaml")
	cli.OutputFlag(cmd, &output)
	cmd.Flags().StringVar(&name, "name", "", "ask this daemon alone")
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for each daemon")
	return cmd
}

// askAll asks the daemons of the deployment, in its file's order; where there is no file
// and none was asked for, those of this machine.
func askAll(cmd *cobra.Command, c *control, name string, timeout time.Duration) ([]answer, error) {
	var answers []answer
	var files config.TLS
	cfg, note, err := deployed(cmd, c, timeout)
	switch {
	case err == nil:
		if note != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
		}
		files = c.tls(cfg)
		for _, s := range cfg.Daemons() {
			answers = append(answers, answer{name: s.Name, role: string(s.Role), api: s.API})
		}
	case noFile(cmd, err):
		names, paths := daemonSockets()
		for i, n := range names {
			answers = append(answers, answer{name: n, api: "unix:" + paths[i]})
		}
		if len(answers) == 0 {
			return nil, fmt.Errorf("no %s and no daemon's socket in %s: name the configuration with -f, or a controller with --api", c.file, runFolder)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "note: there is no %s: the daemons of this machine are asked alone\n", c.file)
	default:
		return nil, err
	}
	return askThese(cmd.Context(), answers, c.file, files, name, timeout)
}

// tls is by which certificate daemons are asked.
func (c *control) tls(cfg *config.Config) config.TLS {
	if t, own := c.own(); own {
		return t
	}
	return cfg.TLS
}

// askRouters asks the routers of a fabric.yaml, in its order.
func askRouters(ctx context.Context, file, name string, timeout time.Duration) ([]answer, error) {
	f, err := topology.Read(file)
	if err != nil {
		return nil, err
	}
	var answers []answer
	for _, n := range f.Nodes {
		if !n.Host {
			answers = append(answers, answer{name: n.Name, role: "router", api: n.API})
		}
	}
	return askThese(ctx, answers, file, f.TLS, name, timeout)
}

// askThese fills in what the daemons say; with a name, of that one alone.
func askThese(ctx context.Context, answers []answer, file string, files config.TLS, name string, timeout time.Duration) ([]answer, error) {
	if name != "" {
		answers = slices.DeleteFunc(answers, func(a answer) bool { return a.name != name })
	}
	if len(answers) == 0 && name != "" {
		return nil, fmt.Errorf("--name %s: no such daemon in %s", name, file)
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("%s names no daemon to ask", file)
	}
	var wg sync.WaitGroup
	for i := range answers {
		a := &answers[i]
		wg.Go(func() {
			client, err := api.Dial(a.api, files)
			if err != nil {
				a.err = err
				return
			}
			a.client = client
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			resp, err := client.GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
			if err != nil {
				a.err = err
				return
			}
			a.status = resp.Msg
		})
	}
	wg.Wait()
	return answers, nil
}

// inForce asks an agent for the newest assignment where balancers were asked
// and none answers, so that servers without an agent are not left out.
func inForce(ctx context.Context, answers []answer, timeout time.Duration) *controller.Assignment {
	silent := false
	var newest *answer
	for i := range answers {
		a := &answers[i]
		switch {
		case a.err != nil:
			silent = silent || a.role == "lb"
		case a.status.Role == fairleadv1.Role_ROLE_BALANCER:
			return nil // it tells all
		case newest == nil || a.status.AssignmentVersion > newest.status.AssignmentVersion:
			newest = a
		}
	}
	if !silent || newest == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := newest.client.GetAssignment(ctx, connect.NewRequest(&fairleadv1.GetAssignmentRequest{}))
	if err != nil {
		return nil // it went away meanwhile: the table shows what is known
	}
	a, err := controller.Decode(resp.Msg.Assignment)
	if err != nil {
		return nil
	}
	return a
}

// assignmentVersions is the newest version and whether all that answered have it
// and, as far as they say, one assignment under it.
func assignmentVersions(answers []answer) (newest uint64, same bool) {
	for _, a := range answers {
		if hasAssignment(a) {
			newest = max(newest, a.status.AssignmentVersion)
		}
	}
	for _, a := range answers {
		if hasAssignment(a) && a.status.AssignmentVersion != newest {
			return newest, false
		}
	}
	return newest, len(byDigest(answers, newest)) <= 1
}

func hasAssignment(a answer) bool {
	return a.err == nil && a.status.Role != fairleadv1.Role_ROLE_ROUTER
}

// sameDigest is daemons that have one assignment.
type sameDigest struct {
	digest string // the beginning, for people
	names  []string
}

// byDigest is the assignments that daemons have under version, each with who has
// it: most first. A daemon of a build that tells no digest is left out.
func byDigest(answers []answer, version uint64) (groups []sameDigest) {
	for _, a := range answers {
		if !hasAssignment(a) || a.status.AssignmentVersion != version || len(a.status.AssignmentDigest) == 0 {
			continue
		}
		digest := fmt.Sprintf("%.6x", a.status.AssignmentDigest)
		i := slices.IndexFunc(groups, func(g sameDigest) bool { return g.digest == digest })
		if i < 0 {
			i, groups = len(groups), append(groups, sameDigest{digest: digest})
		}
		groups[i].names = append(groups[i].names, a.status.Name)
	}
	slices.SortStableFunc(groups, func(a, b sameDigest) int { return len(b.names) - len(a.names) })
	return groups
}

// programVersions says whether daemons of different versions of fairlead
// answered.
func programVersions(answers []answer) (differ bool) {
	seen := map[string]bool{}
	for _, a := range answers {
		if a.err == nil {
			seen[a.status.Version] = true
		}
	}
	return len(seen) > 1
}

// statusValue is the stable form for -o json and yaml: field names as in the
// API's schema, numbers as numbers, enums in lower case without their prefix.
func statusValue(answers []answer, store *storeView) any {
	newest, same := assignmentVersions(answers)
	out := map[string]any{
		"assignment_version": newest,
		"versions_differ":    !same,
		"digests_differ":     len(byDigest(answers, newest)) > 1 || store.differs(answers),
		"programs_differ":    programVersions(answers),
		// Of the first daemon that answers, for tools that look at one.
		"pin_dir": "",
	}
	var daemons []any
	for _, a := range answers {
		if a.err != nil {
			daemons = append(daemons, map[string]any{"name": a.name, "api": a.api, "role": a.role, "reachable": false, "error": a.err.Error()})
			continue
		}
		m := plainMessage(a.status.ProtoReflect())
		m["api"], m["reachable"] = a.api, true
		m["role"] = roleWord(a.status.Role)
		if out["pin_dir"] == "" {
			out["pin_dir"] = a.status.PinDir
		}
		daemons = append(daemons, m)
	}
	out["daemons"] = daemons
	out["warnings"] = warnings(answers, store)
	out["store"] = store.value()
	return out
}

// roleWord is the subcommand that runs such a daemon.
func roleWord(r fairleadv1.Role) string {
	switch r {
	case fairleadv1.Role_ROLE_HOST:
		return "host"
	case fairleadv1.Role_ROLE_SWITCH:
		return "switch"
	case fairleadv1.Role_ROLE_ROUTER:
		return "router"
	}
	return "lb"
}
