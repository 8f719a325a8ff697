package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/vip"
)

func newLabCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "lab",
		Long: `A lab is a client, a router, balancers (or switches) and servers in network namespaces of
this machine, with Fairlead running in them: to look at, to try things in, and
to see what breaks connections and what does not. It needs root.`,
		Example: `  fairlead lab up --servers 4 --lbs 2
  fairlead lab exec client -- curl http://10.77.7.1/
  fairlead lab down
  fairlead lab run churn`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Args: cobra.NoArgs,
	}
	c.AddCommand(newLabUp(), newLabDown(), newLabStatus(), newLabExec(), newLabRun(),
		newLabKill(), newLabStart(), newLabServe(), newLabLoad(), newLabFlood(), newLabDetour())
	return c
}

// labName adds --lab, the name of the lab that a command means.
func labName(c *cobra.Command, name *string) {
	c.Flags().StringVar(name, "lab", "lab", "name of the lab, where there are several: "+lab.NameRule)
}

func newLabUp() *cobra.Command {
	var o lab.Options
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a lab and leave it running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			// To lab.Options zero means the default; asked for, it is wrong.
			if o.Servers < 1 || o.Servers > lab.MaxServers {
				return cli.Usagef("--servers %d: must be 1 to %d", o.Servers, lab.MaxServers)
			}
			if o.LBs < 1 || o.LBs > lab.MaxLBs {
				return cli.Usagef("--lbs %d: must be 1 to %d (without balancers: --plain)", o.LBs, lab.MaxLBs)
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			l, err := lab.Up(cmd.Context(), o, false)
			if errors.Is(err, context.Canceled) && cmd.Context().Err() != nil {
				return errors.New("interrupted; what was built of the lab is removed")
			}
			if err != nil {
				return err
			}
			l.Describe(cmd.OutOrStdout(), strings.TrimSuffix(os.Args[0], "-lab"))
			return nil
		},
	}
	labName(c, &o.Name)
	c.Flags().IntVar(&o.Servers, "servers", 3, fmt.Sprintf("number of servers, 1 to %d", lab.MaxServers))
	c.Flags().IntVar(&o.LBs, "lbs", 2, fmt.Sprintf("number of balancers (scheme faild: switches), 1 to %d", lab.MaxLBs))
	c.Flags().StringVar(&o.Scheme, "scheme", "cheetah", "scheme of the VIPs: "+strings.Join(vip.SchemeNames(), ", ")+" (faild: switches instead of balancers)")
	c.Flags().StringVar(&o.Policy, "policy", "", "policy of the web VIP: "+strings.Join(vip.PolicyNames(), ", ")+" (default rr; hash for every scheme but cheetah)")
	c.Flags().StringVar(&o.Hash, "hash", "", "consistent hash: table-hrw (default), anchor, ring, hrw, maglev, bucket or dx")
	c.Flags().IntVar(&o.Standby, "standby", 0, "further servers that wait in the horizon (fairlead undrain puts them to work)")
	c.Flags().DurationVar(&o.WarmUp, "warm-up", 0, "how long connections are held after a change that was not in the horizon (default: the flow table's idle time)")
	c.Flags().StringVar(&o.Forwarding, "forwarding", "ipip", "how packets get to the servers: "+strings.Join(vip.ForwardingNames(), ", "))
	c.Flags().BoolVar(&o.IPv6, "ipv6", false, "address the servers by IPv6 and show the IPv6 VIP (both are there always)")
	c.Flags().IntVar(&o.MTU, "mtu", 1600, "MTU between balancers and servers; 1500 leaves no room for tunnels")
	c.Flags().BoolVar(&o.NoTimestamps, "no-timestamps", false, "client without TCP timestamps")
	c.Flags().BoolVar(&o.Plain, "plain", false, "no balancers: the router sends everything to server1 (a control)")
	return c
}

func newLabDown() *cobra.Command {
	var all bool
	var name string
	c := &cobra.Command{
		Use:   "down [LAB]",
		Short: "Take a lab down, with everything that runs in it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named := cmd.Flags().Changed("lab")
			if len(args) > 0 && named && args[0] != name {
				return cli.Usagef("which lab, %s or --lab %s?", args[0], name)
			}
			if all && (named || len(args) > 0) {
				return cli.Usagef("--all takes down every lab: name none with it")
			}
			names := []string{name}
			if len(args) > 0 {
				names = args
			}
			if all {
				names = lab.List()
			}
			var errs []error
			for _, name := range names {
				errs = append(errs, lab.Down(name))
			}
			return errors.Join(errs...)
		},
	}
	labName(c, &name)
	c.Flags().BoolVar(&all, "all", false, "all labs of this machine")
	return c
}

func newLabStatus() *cobra.Command {
	var name, output string
	c := &cobra.Command{
		Use:   "status",
		Short: "Show a lab's machines and what runs in them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := lab.Load(name)
			if err != nil {
				return err
			}
			s := l.Status(cmd.Context())
			return cli.PrintAs(cmd.OutOrStdout(), output, s, func(w io.Writer) error { return s.Print(w) })
		},
	}
	labName(c, &name)
	cli.OutputFlag(c, &output)
	return c
}

func newLabExec() *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   "exec MACHINE -- COMMAND [ARGUMENT…]",
		Short: "Run a command in a machine of the lab",
		Long: `Runs a command with the network of client, router, lbN, switchN or serverN. Only the
network differs: files, users and processes are this machine's. The exit
status is the command's.`,
		Example: `  fairlead lab exec client -- curl -s http://10.77.7.1/
  fairlead lab exec server3 -- tcpdump -ni eth0`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Load(name)
			if err != nil {
				return err
			}
			command := args[1:]
			if command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 {
				return cli.Usagef("what should run in %s? For example: fairlead lab exec %s -- ip address", args[0], args[0])
			}
			return l.Exec(args[0], command)
		},
	}
	// What follows the machine's name is the command's own.
	c.Flags().SetInterspersed(false)
	labName(c, &name)
	return c
}

// labDaemon is a command that does something to one machine's daemon.
func labDaemon(use, short, done string, do func(context.Context, *lab.Lab, string) error) *cobra.Command {
	var name string
	c := &cobra.Command{
		Use:   use + " lbN|switchN|serverN",
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lab.Load(name)
			if err != nil {
				return err
			}
			if _, err := l.Machine(args[0]); err != nil {
				return err
			}
			if err := do(cmd.Context(), l, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "lab %s: daemon of %s %s\n", l.Name, args[0], done)
			return nil
		},
	}
	labName(c, &name)
	return c
}

func newLabKill() *cobra.Command {
	return labDaemon("kill", "Kill a machine's daemon (SIGKILL); what it has in the kernel stays", "is killed; what it has in the kernel goes on",
		func(_ context.Context, l *lab.Lab, machine string) error { return l.KillDaemon(machine) })
}

func newLabStart() *cobra.Command {
	return labDaemon("start", "Start a machine's daemon again", "runs and answers",
		func(ctx context.Context, l *lab.Lab, machine string) error { return l.StartDaemon(ctx, machine) })
}

// newLabServe and newLabLoad are what the lab starts in its machines.
func newLabServe() *cobra.Command {
	var name string
	var texts []string
	var plainTCP bool
	c := &cobra.Command{
		Use: "serve", Hidden: true, Args: cobra.NoArgs,
		Short: "A lab's server: HTTP on port 80 and UDP echo on port 7",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var addresses []netip.Addr
			for _, t := range texts {
				a, err := netip.ParseAddr(t)
				if err != nil {
					return cli.Usagef("--address: %v", err)
				}
				addresses = append(addresses, a)
			}
			return lab.Serve(cmd.Context(), name, addresses, plainTCP, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
		},
	}
	c.Flags().StringVar(&name, "name", "server", "who answers")
	c.Flags().BoolVar(&plainTCP, "plain-tcp", false, "take no MPTCP, as handshake offload needs")
	c.Flags().StringArrayVar(&texts, "address", nil, "address of a UDP echo (repeatable)")
	return c
}

// labPiped is one that the lab speaks with by its input and output.
func labPiped(use, short string, run func(context.Context, io.Reader, io.Writer) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Hidden: true, Args: cobra.NoArgs,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.InOrStdin(), os.Stdout)
		},
	}
}

func newLabLoad() *cobra.Command {
	return labPiped("load", "A lab's client: carries out the plan on its input, reports on its output", lab.RunLoad)
}

func newLabFlood() *cobra.Command {
	return labPiped("flood", "A lab's attacker: floods as the plan on its input says, reports on its output", lab.RunFlood)
}

func newLabDetour() *cobra.Command {
	return labPiped("detour", "A lab's measuring client: answers the requests on its input",
		func(_ context.Context, in io.Reader, out io.Writer) error { return lab.RunDetour(in, out) })
}
