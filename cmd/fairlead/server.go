package main

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
)

// verb is a change that a controller carries out: apply, rollback, add, drain,
// undrain, remove, weight, rotate; or that a switch does alone: drain, undrain, unlock.
type verb struct {
	control
	output  string
	options options
	planned bool // nothing is done: see changeResult
}

// options are what every change takes.
type options struct {
	Force   bool
	Without []string // daemons
}

// client is of a daemon.
type client = fairleadv1connect.FairleadClient

type changed = connect.Response[fairleadv1.ChangeResponse]

func (v *verb) flags(cmd *cobra.Command) {
	v.control.flags(cmd)
	cli.OutputFlag(cmd, &v.output)
	changeFlags(cmd, &v.options)
}

// called is what messages are to call the file.
func (v *verb) called() string {
	if !config.FileName(v.file) {
		return ""
	}
	return v.file
}

// run has a controller make the change.
func (v *verb) run(cmd *cobra.Command, do func(context.Context, controlClient) (*changed, error)) error {
	return v.runAs(cmd, "nothing to do: it is so already", do)
}

// runFile is run of what takes the file.
func (v *verb) runFile(cmd *cobra.Command, do func(context.Context, controlClient, string) (*changed, error)) error {
	if err := cli.CheckOutput(v.output); err != nil {
		return err
	}
	text, err := v.text(cmd)
	if err != nil {
		return err
	}
	return v.runAs(cmd, "nothing to do: the daemons have what "+v.file+" wants", func(ctx context.Context, c controlClient) (*changed, error) {
		return do(ctx, c, text)
	})
}

func (v *verb) runAs(cmd *cobra.Command, nothing string, do func(context.Context, controlClient) (*changed, error)) error {
	if err := cli.CheckOutput(v.output); err != nil {
		return err
	}
	v.changes = !v.planned
	resp, err := askControl(&v.control, cmd, controlTimeout, do)
	if err != nil {
		return refusedAs(cmd, v.output, err)
	}
	r := resultOf(resp)
	if v.planned {
		r.planned = v.file
	}
	if err := r.print(cmd, v.output, nothing); err != nil || len(resp.Refused) == 0 {
		return err
	}
	return refused(errors.New(strings.Join(resp.Refused, "\n")))
}

// vipServer splits the arguments [VIP] SERVER.
func vipServer(args []string) (vip, server string) {
	if len(args) == 2 {
		return args[0], args[1]
	}
	return "", args[0]
}

// newVerb is a command of the form VERB [VIP] SERVER.
func newVerb(name, short, long, example string, do func(context.Context, controlClient, string, string, options) (*changed, error)) *cobra.Command {
	var v verb
	var wait waiting
	cmd := &cobra.Command{
		Use:     name + " [VIP] SERVER",
		Short:   short,
		Long:    long,
		Example: example,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := wait.check(cmd); err != nil {
				return err
			}
			vip, server := vipServer(args)
			switch s, t, ok := v.findSwitch(cmd, server); {
			case ok && (vip != "" || name == "remove"):
				return isSwitch(s.Name)
			case ok && wait.asked:
				return cli.Usagef("--wait: %s is a switch, which has no connections of its own; leave it out", s.Name)
			case ok:
				return v.drainSwitch(cmd, s, t, name == "undrain")
			}
			err := v.run(cmd, func(ctx context.Context, c controlClient) (*changed, error) {
				r, err := do(ctx, c, vip, server, v.options)
				if len(args) == 1 && name != "remove" {
					err = v.norSwitch(cmd, err)
				}
				return r, err
			})
			if err != nil || !wait.asked {
				return err
			}
			return wait.until(cmd, &v.control, vip, server)
		},
	}
	v.flags(cmd)
	if name == "drain" {
		wait.flags(cmd)
	}
	return cmd
}

func newDrainCommand() *cobra.Command {
	return newVerb("drain", "Give a server no new connections, or have a switch get no packets",
		`The server keeps its connections and gets no new ones, in one VIP or in all
that it serves. The last of a VIP that takes new ones is refused unless --force, which
takes the role administer. With --wait the command ends when its connections have ended, or
after --timeout; then 'fairlead remove' it. Takes the role operate.

A balancer of tier two (docs/tiers.md) drains for all VIPs: it keeps its connections, and
tier one gives it no new ones.

A switch withdraws its announced routes, so that routers send their packets to
the other switches; what still comes is forwarded as before. It stays so over
restarts, until 'fairlead undrain'. No other daemon is asked.`,
		"  fairlead drain web s1\n  fairlead drain s1 --wait --timeout 1h   # in every VIP\n  fairlead drain sw1       # a switch of the file",
		func(ctx context.Context, c controlClient, vip, server string, o options) (*changed, error) {
			return c.DrainServer(ctx, connect.NewRequest(&fairleadv1.DrainServerRequest{Vip: vip, Server: server, Force: o.Force, Without: o.Without}))
		})
}

func newUndrainCommand() *cobra.Command {
	return newVerb("undrain", "Give a drained server or a standby new connections, or a switch packets",
		`Takes back 'fairlead drain', or sets a standby to work, in one VIP or in all
that the server serves. A standby moves no connection by it, and needs no
warm-up: what it takes over was tracked (schemes jet and full-ct), or its owners
pass it on (beamer, faild). All VIPs of scheme faild change together. A switch
announces its routes again.`,
		"  fairlead undrain web s1\n  fairlead undrain sw1",
		func(ctx context.Context, c controlClient, vip, server string, o options) (*changed, error) {
			return c.UndrainServer(ctx, connect.NewRequest(&fairleadv1.UndrainServerRequest{Vip: vip, Server: server, Force: o.Force, Without: o.Without}))
		})
}

func newRemoveCommand() *cobra.Command {
	return newVerb("remove", "Take a server out of a VIP",
		`Refused while the server has live connections, and while its agent does not
answer so that nobody knows; --force removes it anyway. Where no agent counts
them (schemes jet and full-ct need none), drain it first, for the VIP's
warm_up. Schemes beamer and faild want it drained first, too, until its agent
says that it owns nothing. Its slot rests until no connection can name it any more: what still
comes is forwarded to it. A standby goes at once. The last server of a VIP that takes new
connections is refused unless --force.`,
		"  fairlead remove web s1\n  fairlead remove s1 --without s1   # the machine is gone",
		func(ctx context.Context, c controlClient, vip, server string, o options) (*changed, error) {
			return c.RemoveServer(ctx, connect.NewRequest(&fairleadv1.RemoveServerRequest{Vip: vip, Server: server, Force: o.Force, Without: o.Without}))
		})
}

func newAddCommand() *cobra.Command {
	var v verb
	var address, agent string
	var weight int
	var standby bool
	cmd := &cobra.Command{
		Use:   "add [VIP] SERVER",
		Short: "Put a server into a VIP",
		Long: `Puts a server into a VIP's pool, or into those of all VIPs for which the
desired state names it. Every daemon knows its slot before the first new
connection goes there.

With --standby it gets no connections yet, but those that it would get are
tracked from now on, so that none moves when 'fairlead undrain' sets it to
work. Without, connections that it takes over without having been foreseen are
held where they are for the VIP's warm_up. Schemes beamer and faild need neither:
servers that own connections of its buckets go on getting their packets.`,
		Example: "  fairlead add web s4 --address 10.0.1.4\n  fairlead add web s5 --address 10.0.1.5 --standby\n  fairlead add s4          # as the desired state has it",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			vip, server := vipServer(args)
			if address != "" {
				if _, err := netip.ParseAddr(address); err != nil {
					return cli.Usagef("--address %s: not an IP address", address)
				}
			}
			if cmd.Flags().Changed("weight") && (weight < 1 || weight > 1000) {
				return cli.Usagef("--weight %d: must be 1 to 1000", weight)
			}
			return v.run(cmd, func(ctx context.Context, c controlClient) (*changed, error) {
				return c.AddServer(ctx, connect.NewRequest(&fairleadv1.AddServerRequest{
					Vip: vip, Server: server, Address: address, Api: agent, Weight: uint32(weight), Standby: standby,
					Force: v.options.Force, Without: v.options.Without,
				}))
			})
		},
	}
	v.flags(cmd)
	cmd.Flags().StringVar(&address, "address", "", "the server's own address (default: as the desired state or another VIP has it)")
	cmd.Flags().StringVar(&agent, "agent", "", "where its agent answers: unix:/path, https://address:port or none (default: as the desired state has it)")
	cmd.Flags().BoolVar(&standby, "standby", false, "no connections yet: track what it would get, for 'fairlead undrain' later")
	cmd.Flags().IntVar(&weight, "weight", 0, "share of new connections, 1 to 1000 (default: the desired state's, or 1)")
	return cmd
}

func newWeightCommand() *cobra.Command {
	var v verb
	cmd := &cobra.Command{
		Use:     "weight [VIP] SERVER WEIGHT",
		Short:   "Change a server's share of new connections",
		Long:    "Weights are 1 to 1000 and count against those of the VIP's other servers. Policy\nrr has none, hash anchor and dx have the same for all. Connections that exist\nstay where they are.",
		Example: "  fairlead weight web s1 50",
		Args:    cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			vip, server := vipServer(args[:last])
			weight, err := strconv.ParseUint(args[last], 10, 32)
			if err != nil || weight < 1 || weight > 1000 {
				return cli.Usagef("weight %s: must be 1 to 1000; 'fairlead drain' gives a server no new connections", args[last])
			}
			if s, _, ok := v.findSwitch(cmd, server); ok {
				return isSwitch(s.Name)
			}
			return v.run(cmd, func(ctx context.Context, c controlClient) (*changed, error) {
				return c.SetWeight(ctx, connect.NewRequest(&fairleadv1.SetWeightRequest{
					Vip: vip, Server: server, Weight: uint32(weight), Force: v.options.Force, Without: v.options.Without,
				}))
			})
		},
	}
	v.flags(cmd)
	return cmd
}

// fileFlag adds -f, the configuration file, as every command has it.
func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "/etc/fairlead/fairlead.yaml", "configuration file")
}
