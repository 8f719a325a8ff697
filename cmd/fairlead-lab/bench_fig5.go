package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/bench"
	"github.com/fairlead/fairlead/cmd/cli"
)

func newBenchFig5Command() *cobra.Command {
	var output string
	o := bench.Fig5Defaults()
	c := &cobra.Command{
		Use:   "fig5",
		Short: "Measure what Cheetah's figure 5 compares: a packet's cost by how connections are found",
		Long: `Measure a packet's cost as figure 5 of Cheetah's paper (NSDI'20) compares it, by how a
balancer finds the server of a connection, at several rates of new connections with
a million of them open, beside the cycles of the paper.

hash-rss          by the hash that a NIC's descriptor says (a load, nothing reckoned)
cheetah           scheme cheetah: the cookie names the server
hash-crc          by CRC-32C, in software: BPF has no instruction for it
cheetah-stateful  the scheme of that name: the cookie names an entry, too
beamer            scheme beamer
cuckoo            every connection in a cuckoo hash table of this core
hash-toeplitz     by a NIC's hash, in software
stateless         scheme stateless
beamer-moved      scheme beamer, all of whose buckets have moved, so that every packet
                  takes along whose it was
jet               scheme jet, of 500 servers and 50 in the horizon
full-ct           scheme full-ct
bpf-hash          every connection in BPF's hash map
bpf-lru           every connection in BPF's LRU hash map

What has the name of a scheme is the balancer's own program. The others are the floor
("fairlead bench") with another look-up. The paper has no cycles for the last seven.

The clients' packets are so many a second, whatever the rate: what --packets says for
each connection at 640,000 new ones. So a rate sets which share of packets opens and
closes a connection; the others are of connections that are open, drawn evenly. In the
paper every connection is a request for 8 KB, at all rates: docs/bench.md says what follows.

All ways meet the same packets in turns, by test runs: no interface is touched. What the
loop costs is subtracted. Cycles are of the time stamp counter. It prints which orders of
the paper hold. Nothing is judged by them: the exit status is 0 whatever was measured.
It needs root, takes about 3 minutes on a machine that does nothing else, and a gigabyte of memory.`,
		Example: "  fairlead bench fig5\n  fairlead bench fig5 --rates 640000 -o json\n  fairlead bench fig5 --live 10000      # entries in the cache",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return cli.Usage(err)
			}
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if cli.Terminal(os.Stderr) {
				o.Progress = func(what string) { fmt.Fprintf(os.Stderr, "\r\033[K%s", what) }
			}
			r, err := bench.Fig5(cmd.Context(), o)
			if o.Progress != nil {
				fmt.Fprint(os.Stderr, "\r\033[K")
			}
			if r == nil {
				return err
			}
			// An interrupted run has a result, too: of its whole rounds.
			return errors.Join(cli.PrintAs(cmd.OutOrStdout(), output, r, func(w io.Writer) error { return fig5Table(w, r) }), err)
		},
	}
	cli.OutputFlag(c, &output)
	c.Flags().IntSliceVar(&o.Rates, "rates", o.Rates, "new connections a second")
	c.Flags().IntVar(&o.Live, "live", o.Live, "connections that are open all the time")
	c.Flags().IntVar(&o.PerConnection, "packets", o.PerConnection, "a client's packets in a connection, at 640000 new ones a second")
	c.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "how often each way is measured at each rate (at least 10)")
	return c
}

func fig5Table(out io.Writer, r *bench.Fig5Result) error {
	fmt.Fprintf(out, "kernel %s · %s, %.2f GHz (time stamp counter) · load %s · %d rounds\n%d connections open, %d packets a second, %d MB of memory\n",
		r.Kernel, r.CPU, r.TSCHz/1e9, r.Load, r.Rounds, r.Live, r.PacketRate, r.MemoryBytes>>20)
	rate := 0
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	for _, p := range r.Points {
		if p.Rate != rate {
			rate = p.Rate
			fmt.Fprintf(w, "\n%d new connections a second (%.2g %% of packets are SYNs)\nway\tns\tmin\tmax\tratio\tcycles\tpaper's\tno entry\t\n", rate, 100*float64(rate)/float64(r.PacketRate))
		}
		paper, missed := "", ""
		if p.Paper > 0 {
			paper = fmt.Sprint(p.Paper)
		}
		if p.Missed > 0 {
			missed = fmt.Sprintf("%.3f %%", 100*p.Missed)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.2f\t%.0f\t%s\t%s\t\n", p.Name, p.NS, p.Min, p.Max, p.Ratio, p.Cycles, paper, missed)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return fig5Orders(out, r.Orders)
}

// fig5Orders says which of the paper's orders hold.
func fig5Orders(out io.Writer, all []bench.Fig5Compare) error {
	count := map[string]int{}
	for _, c := range all {
		count[c.Holds]++
	}
	fmt.Fprintf(out, "\nof %d orders of the paper %d hold, %d are too close here to say, %d differ\n", len(all), count["holds"], count["close"], count["differs"])
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, c := range all {
		if c.Holds == "differs" {
			reason := c.Reason
			if reason == "" {
				reason = "not found out why"
			}
			fmt.Fprintf(w, "%d:\t%s before %s\tthere × %.2f,\there × %.2f:\t%s\n", c.Rate, c.Cheaper, c.Dearer, c.Paper, c.Here, reason)
		}
	}
	return w.Flush()
}
