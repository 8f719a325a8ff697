// Command fairlead-lab is Fairlead's laboratory: deployments in network
// namespaces, measurements, simulations. Users start it as `fairlead demo`,
// `fairlead lab`, `fairlead bench` and `fairlead sim`, so that this is what its
// help calls it; machines that balance do without it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/version"
)

func main() {
	// Not for the programs that this one starts.
	product, mine := os.Getenv(cli.HandedOver), version.String()
	os.Unsetenv(cli.HandedOver)
	if product != "" && product != mine {
		fmt.Fprintf(os.Stderr, "fairlead-lab: this is version %s, and fairlead, which started it, is %s: put both of one `make build` into one folder\n", mine, product)
	}
	cli.Main(newRootCommand())
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   cli.Product,
		Short: "Fairlead's laboratory, measurements and simulations",
		Long: `The commands of fairlead that try it out and measure it. Write them after fairlead,
which starts this program, fairlead-lab, from the folder that it is in itself, or
from PATH. What runs in the lab's machines is fairlead again, found likewise.`,
	}
	root.AddCommand(newDemoCommand(), newLabCommand(), newBenchCommand(), newSimCommand())
	for _, c := range root.Commands() {
		c.Short = cli.Experiments[c.Name()]
	}
	return root
}
