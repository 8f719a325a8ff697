//go:build !ctl

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/fabric/topology"
)

func newPathImportCommand() *cobra.Command {
	var options topology.LLDPOptions
	cmd := &cobra.Command{
		Use:   "import FILE...",
		Short: "Make the fabric's file from what LLDP says",
		Long: `Make fabric.yaml, on standard output, from what the LLDP daemons of routers and
hosts know of their neighbours: each FILE is what 'lldpcli -f json0
show neighbors' prints on one machine, and is called as that machine:
leaf1.json. Links that only one end reports are taken, too.

Ports get numbers in the order of their devices' names, and the selector a
random key. Machines with one neighbour that do not say that they route are
hosts, and so are those that --host names. Look the file over, and give hosts
their addresses, before routers go by it: numbers must not change later. Keep the key
from others: chmod 600, or write key_file instead ('fairlead secret').`,
		Example: "  fairlead path import leaf1.json leaf2.json spine1.json >fabric.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			reports := map[string][]byte{}
			for _, name := range args {
				data, _, err := yamlfile.ReadBounded(name, yamlfile.MaxFile)
				if err != nil {
					wrong, remedy := yamlfile.Unread(err, "write there what `lldpcli -f json0 show neighbors` prints")
					return fmt.Errorf("%s: %s; %s", name, wrong, remedy)
				}
				reports[name] = data
			}
			f, err := topology.FromLLDP(reports, options)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%d routers and hosts, %d links\n", len(f.Nodes), len(f.Links))
			return writeFabric(cmd, f)
		},
	}
	cmd.Flags().StringSliceVar(&options.Hosts, "host", nil, "names of machines that are hosts, whatever they say")
	return cmd
}
