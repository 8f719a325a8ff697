package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/vip"
)

func newLabRun() *cobra.Command {
	var o lab.RunOptions
	var output string
	c := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario in a lab of its own and judge it",
		Long: `Runs a scenario and takes its lab down. Scenarios:

  churn         real connections while servers, balancers, routes and keys
                change
  synflood      connections that are mostly silent under a flood of SYNs and
                ACKs with random sources, while servers and balancers change;
                with --drained (beamer's default) while servers drain
  chain         every bucket goes from server to server three times while
                connections live on each of them; the detour's latency
  stale-mux     a balancer's daemon is killed or cut off while the others go on
  drain-switch  hosts of scheme faild drain, crash and pass on, a switch
                drains; beside a plain and a resilient ECMP group
  attack        somebody where clients are sends hostile packets of all kinds,
                floods, neighbour discovery and redirects in tunnels, forged
                RSTs, errors by the hundred, idle connections to the API
                (about five minutes); --without-guards shows what they do where
                nothing holds them off
  parted        five machines with three controllers among them lose each other,
                in every way that there is, and both halves try a change
                (about five minutes)
  scaling       figure 9 of Cheetah's paper: 24 to 32 servers are added and
                drain while requests come as a web server's; beside it what
                the simulator says of the same schedule (three and a half minutes)
  offload       churn's connections under a flood of 200,000 packets a second, half of
                them SYNs: handshakes answered by agents beside the stack's
  two-tier      balancers of both tiers come, drain and die, beside changes of
                servers
  migrate-scheme  VIPs change their scheme, to cookies and back, beside VIPs that
                are made anew (two minutes)
  control       churn's connections straight to one server, without balancers

With flags of their own, and help (fairlead lab run SCENARIO --help):

  bgp           balancers announce to BIRD and FRR, stop, die and come back
  l2-vip        balancers hold addresses on an Ethernet, stop, die and come back
  chaos         everything fails that can, while operators change what they like
  rolling-upgrade  the program changes process by process
  drain-time    ten balancers stop giving a server connections
  fabric        steered tunnels in a leaf-spine
  seven-paths   Multipath TCP over chosen paths

Schemes, policies and families run side by side, through the same changes at
the same times (faild, and full-ct under a flood: in a lab of their own). Exit
status 1 if something that must be 0 is not: broken connections, or RSTs at
clients whose server lives, under cheetah, jet, beamer or faild; or if nothing
breaks under what they are compared with, nothing lived through a change, or
the flood fills no table: then the run proves nothing.`,
		Example: `  fairlead lab run churn
  fairlead lab run churn --scheme jet --hash table-hrw,anchor
  fairlead lab run churn --scheme beamer --forwarding gue
  fairlead lab run churn --scheme faild --seed 7
  fairlead lab run synflood --rate 30000
  fairlead lab run synflood --scheme beamer --drained 0,1,2,4
  fairlead lab run attack --seed 3
  fairlead lab run scaling --seed 2
  fairlead lab run churn -o json --seed 7 --scheme cheetah --policy p2c --ipv6`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			o.Scenario = args[0]
			if known := lab.ScenarioNames(); !slices.Contains(known, o.Scenario) {
				known = append(known, "bgp", "chaos", "drain-time", "fabric", "l2-vip", "rolling-upgrade", "seven-paths")
				return cli.Usagef("there is no scenario %q%s; there are %s", o.Scenario, cli.DidYouMean(yamlfile.Nearest(o.Scenario, known)), strings.Join(known, ", "))
			}
			drawSeed(cmd, &o.Seed)
			out := cmd.OutOrStdout()
			if output == "table" && cli.Terminal(out) {
				o.Watch = func(m lab.Moment) {
					if m.Text != "" {
						fmt.Fprintln(out, m.Line())
					}
				}
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			result, err := lab.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, o.Seed, "lab", err)
			}
			return tell(cmd, output, result.Head, result, result.PrintResult)
		},
	}
	seedFlag(c, &o.Seed)
	c.Flags().StringSliceVar(&o.Schemes, "scheme", nil, "schemes, comma-separated (default cheetah,stateless; offload: cheetah; attack: cheetah,jet,beamer,faild; synflood: jet,cheetah,full-ct; chain: beamer,faild; stale-mux: beamer; drain-switch: faild; parted: cheetah,jet,beamer; scaling: cheetah,beamer,jet,stateless)")
	c.Flags().StringSliceVar(&o.Hashes, "hash", nil, "hashes of the other schemes, comma-separated (default table-hrw, for jet table-hrw,anchor; attack: table-hrw; scaling: anchor, for stateless table-hrw,maglev,bucket)")
	c.Flags().StringSliceVar(&o.Policies, "policy", nil, "policies of cheetah, comma-separated (default rr,p2c; attack, synflood, scaling: rr)")
	c.Flags().IntVar(&o.Rate, "rate", 0, fmt.Sprintf("synflood, and attack's floods: packets a second, at most %d (default %d)", lab.MaxFloodRate, lab.DefaultFloodRate))
	c.Flags().IntSliceVar(&o.Drained, "drained", nil, "synflood: drain that many of 8 servers instead of the other changes, each in a lab of its own, comma-separated (default with --scheme beamer: 0,1,2,4)")
	c.Flags().Float64Var(&o.RateFactor, "rate-factor", 0, fmt.Sprintf("scaling: share of the paper's 1,500 to 2,500 requests a second, at most %g (default %g)", lab.MaxRateFactor, lab.DefaultRateFactor))
	c.Flags().StringVar(&o.Forwarding, "forwarding", "", strings.Join(vip.ForwardingNames(), ", ")+" (default ipip; beamer and attack: ipip and gue side by side, but in scaling)")
	c.Flags().BoolVar(&o.IPv6, "ipv6", false, "IPv6 alone (default: both families side by side; scaling: IPv4)")
	c.Flags().BoolVar(&o.NoTimestamps, "no-timestamps", false, "client without TCP timestamps, so without cookies: cheetah's fallback")
	c.Flags().BoolVar(&o.WithoutGuards, "without-guards", false, "attack: leave out what holds attackers off; the run fails unless attacks succeed then")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the lab there if the run fails")
	cli.OutputFlag(c, &output)
	c.AddCommand(newLabFabric(), newLabSevenPaths(), newLabBGP(), newLabL2(), newLabChaos(), newLabUpgrade(), newLabDrain())
	return c
}

// seedFlag adds --seed.
func seedFlag(c *cobra.Command, seed *uint64) {
	c.Flags().Uint64Var(seed, "seed", 0, "repeat the run with this seed (default: a new one, which is printed)")
}

// drawSeed draws one where none is given.
func drawSeed(cmd *cobra.Command, seed *uint64) {
	if !cmd.Flags().Changed("seed") {
		*seed = rand.Uint64() >> 33 // short enough to type again
	}
}

// stopped is the error of an experiment that has no result: perhaps that it was
// interrupted.
func stopped(cmd *cobra.Command, seed uint64, what string, err error) error {
	if errors.Is(err, context.Canceled) && cmd.Context().Err() != nil {
		fate := "is taken down"
		if kept, err := cmd.Flags().GetBool("keep"); err == nil && kept {
			fate = "is left there"
		}
		return fmt.Errorf("interrupted (seed %d); the %s %s", seed, what, fate)
	}
	return err
}

// tell prints an experiment's result and fails if that is its verdict.
func tell(cmd *cobra.Command, output string, head experiment.Head, result any, table func(io.Writer) error) error {
	if err := cli.PrintAs(cmd.OutOrStdout(), output, result, table); err != nil {
		return err
	}
	if len(head.Verdict) > 0 {
		return fmt.Errorf("seed %d: %s", head.Seed, strings.Join(head.Verdict, "; "))
	}
	return nil
}
