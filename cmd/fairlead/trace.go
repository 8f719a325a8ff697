//go:build !ctl

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/inspect/trace"
	"github.com/fairlead/fairlead/kernel"
)

func newTraceCommand() *cobra.Command {
	var name, pinDir, stateDir, capture, output string
	var number int
	cmd := &cobra.Command{
		Use:   "trace [--name LB] ['PACKET' | --pcap FILE]",
		Short: "Tell a packet's story through the loaded balancer",
		Long: `Run a packet through a private copy of the loaded program and its tables, and
tell its story: VIP, scheme, what its cookie says, server, policy,
encapsulation, or why it is dropped. Counters, tables and flows of the
balancer are not touched; its daemon need not run.

` + trace.Grammar + `

With --pcap, every packet of a classic pcap file (Ethernet or raw IP) is
traced, one after another through the same copy, each at the time at which it
was captured, so that its cookie is as old as it was then.`,
		Example: `  fairlead trace 'tcp 203.0.113.7:4711 > 192.0.2.10:80 syn'
  fairlead trace --name lb1 'tcp 203.0.113.7:4711 > 192.0.2.10:80 ack cookie-of=web1'
  fairlead trace 'icmp 198.51.100.1 > 192.0.2.10 too-big mtu=1400 quoting tcp 192.0.2.10:80 > 203.0.113.7:4711 cookie-of=web1'
  fairlead trace --pcap capture.pcap -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if (len(args) == 0) == (capture == "") {
				return cli.Usagef("give a packet or --pcap FILE; the packet's language: fairlead trace --help")
			}
			if number < 0 || number > 0 && capture == "" {
				return cli.Usagef("--packet %d: must be 1 or more, of --pcap", number)
			}
			var spec *trace.Spec
			if capture == "" {
				var err error
				// Words may come quoted as one argument or as several.
				if spec, err = trace.ParseSpec(strings.Join(args, " ")); err != nil {
					return cli.Usagef("%w", err)
				}
			}
			dir, names, err := findLoaded(name, pinDir, stateDir)
			if err != nil {
				return err
			}
			t, err := trace.Open(dir, names)
			if err != nil {
				return err
			}
			defer t.Close()
			if spec != nil {
				story, err := t.Spec(spec)
				if err != nil {
					return err
				}
				return cli.PrintAs(cmd.OutOrStdout(), output, story, story.Text)
			}
			stories, failed := traceCapture(cmd.Context(), t, capture, number)
			if failed != nil && len(stories) == 0 {
				return failed
			}
			return errors.Join(failed, cli.PrintAs(cmd.OutOrStdout(), output, stories, func(w io.Writer) error {
				for i, s := range stories {
					if i > 0 {
						fmt.Fprintln(w)
					}
					if err := s.Text(w); err != nil {
						return err
					}
				}
				return nil
			}))
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the balancer's name (default: the only one that is loaded)")
	cmd.Flags().StringVar(&pinDir, "pin-dir", "", "folder of bpffs where it is pinned, instead of --name")
	cmd.Flags().StringVar(&stateDir, "state-dir", daemon.DefaultStateDir, "folder of the daemons' state: gives names to VIPs and servers")
	cmd.Flags().StringVar(&capture, "pcap", "", "trace the packets of this file")
	cmd.Flags().IntVar(&number, "packet", 0, "of --pcap, show only this packet (from 1); those before run, too")
	cli.OutputFlag(cmd, &output)
	return cmd
}

// besides is where to look where there is nothing to trace.
const besides = "; packets of scheme faild pass none: ip route get, ip neigh and bridge fdb on the switch show their way (docs/faild.md)"

// findLoaded is where the balancer is pinned, and its assignment where there
// is one on disk.
func findLoaded(name, pinDir, stateDir string) (string, *controller.Assignment, error) {
	if pinDir != "" {
		if name != "" {
			return "", nil, cli.Usagef("give --name or --pin-dir, not both")
		}
		name = filepath.Base(pinDir)
	}
	if name == "" {
		found, err := loadedBalancers()
		switch {
		case err != nil:
			return "", nil, err
		case len(found) == 0:
			return "", nil, errors.New("no balancer is loaded here: start one with fairlead lb" + besides)
		case len(found) > 1:
			return "", nil, cli.Usagef("several balancers are loaded (%s): say which by --name", strings.Join(found, ", "))
		}
		name = found[0]
	}
	if pinDir == "" {
		pinDir = kernel.Dir(name)
		if _, err := os.Stat(filepath.Join(pinDir, "programs", "lb")); errors.Is(err, fs.ErrNotExist) {
			return "", nil, fmt.Errorf("no balancer %s is loaded here (%s): start it with fairlead lb%s", name, pinDir, besides)
		}
	}
	names, err := member.ReadAssignment(stateDir, name)
	if err != nil {
		return "", nil, fmt.Errorf("read the names of VIPs and servers from %s: %w", stateDir, err)
	}
	return pinDir, names, nil
}

// loadedBalancers are the names under which a balancer is pinned.
func loadedBalancers() (names []string, err error) {
	root := filepath.Dir(kernel.Dir("x"))
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for what is loaded: %w", err)
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(root, e.Name(), "programs", "lb")); err == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// traceCapture traces a file's packets, of which all are returned or the one
// with the number.
func traceCapture(ctx context.Context, t *trace.Tracer, file string, number int) ([]*trace.Story, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stories, err := t.Capture(ctx, f)
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	if number == 0 {
		return stories, err
	}
	for _, s := range stories {
		if s.Number == number {
			return []*trace.Story{s}, nil
		}
	}
	return nil, cmp.Or(err, fmt.Errorf("%s: no packet %d that can be traced", file, number))
}
