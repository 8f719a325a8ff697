package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/lab/chaos"
)

func newLabChaos() *cobra.Command {
	var o chaos.Options
	var output string
	c := &cobra.Command{
		Use:   "chaos",
		Short: "Everything fails that can, while operators change what they like",
		Long: `Builds a lab of three controllers, two balancers and five servers, and has faults come,
one to three together: daemons and controllers are killed or stand still, store members,
controllers, balancers and agents are parted from each other, disks are full, files are
damaged while their daemon is down, the controller that leads or an operator's command
is killed in the middle of a change, a server's service is killed, or the whole server
loses its power and comes back. Meanwhile three operators drain, undrain, weigh, add,
remove, rotate and apply, and clients have connections.

Exit status 1 if a connection breaks whose server did not die, if all is not well again by
itself, or if what operators were told and what was seen of the store and of daemons is no
history that one store could have had: an acknowledged change is lost or there twice, a
version is nobody's, a look is older than its time, a daemon goes back. It needs root, and
takes about four seconds a fault.`,
		Example: "  fairlead lab run chaos --faults 200\n  fairlead lab run chaos --seed 7 --faults 20 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			drawSeed(cmd, &o.Seed)
			if err := o.Check(); err != nil {
				return cli.Usage(err)
			}
			out := cmd.OutOrStdout()
			if output == "table" && cli.Terminal(out) {
				o.Watch = func(text string) { fmt.Fprintln(out, text) }
			}
			if o.Program, err = cli.Beside(cli.Product); err != nil {
				return err
			}
			result, err := chaos.Run(cmd.Context(), o)
			if err != nil {
				return stopped(cmd, o.Seed, "lab", err)
			}
			return tell(cmd, output, result.Head, result, result.Print)
		},
	}
	c.Flags().IntVar(&o.Faults, "faults", 200, "how many, 1 to 1000")
	c.Flags().BoolVar(&o.Keep, "keep", false, "leave the lab there if the run fails")
	seedFlag(c, &o.Seed)
	cli.OutputFlag(c, &output)
	return c
}
