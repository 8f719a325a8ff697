//go:build !ctl

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/fabric/paths"
	"github.com/fairlead/fairlead/fabric/topology"
)

func newPathReportCommand() *cobra.Command {
	var f pathFlags
	var valid time.Duration
	cmd := &cobra.Command{
		Use:   "report LINK FROM RATE",
		Short: "Tell the path service what was measured on a link",
		Long: `Tell the path service how much LINK carries, sent by the node FROM, all traffic
together: for a meter of your own. The link's capacity must stand in the file.`,
		Example: "  fairlead path report leaf1:0-spine1:3 leaf1 4.2Gbit --valid 1m",
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckOutput(f.output); err != nil {
				return err
			}
			bits, err := int64(0), error(nil)
			if args[2] != "0" {
				if bits, err = topology.ParseRate(args[2]); err != nil {
					return cli.Usagef("RATE %q: %w; write bit/s such as 4Gbit or 250Mbit", args[2], err)
				}
			}
			if valid < time.Second || valid%time.Second != 0 {
				return cli.Usagef("--valid %s: must be whole seconds, 1s or more", valid)
			}
			q := &fairleadv1.ReportLoadRequest{ValidSeconds: uint32(valid / time.Second),
				Links: []*fairleadv1.MeasuredLink{{Link: args[0], From: args[1], BitsPerSecond: float64(bits)}}}
			if _, err := query(cmd.Context(), &f, f.serving, fairleadv1connect.PathsClient.ReportLoad, q); err != nil {
				return err
			}
			return cli.PrintAs(cmd.OutOrStdout(), f.output, plainMessage(q.ProtoReflect()), func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "link %s carries %s from %s, for %s\n", args[0], humanRate(float64(bits)), args[1], valid)
				return err
			})
		},
	}
	f.add(cmd)
	cmd.Flags().DurationVar(&valid, "valid", 30*time.Second, "how long it counts")
	return cmd
}

func newPathMeasureCommand() *cobra.Command {
	var file, service string
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "measure NODE",
		Short: "Report what this machine's links carry to the path service, again and again",
		Long: `On the machine that the file calls NODE, read the kernel's counters of the
devices that the file gives its links, and report the rates to the path
service until stopped: for hosts and plain routers. Routers that run 'fairlead
router' are asked by the service itself.

What cannot be read or reported at first ends the command; later it is told
once, and tried again.`,
		Example: "  fairlead path measure h1 --service https://192.0.2.5:7475",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if every < 100*time.Millisecond {
				return cli.Usagef("--every %s: must be 100ms or more", every)
			}
			f := pathFlags{file: file, service: service}
			fabric, err := topology.Read(file)
			if err != nil {
				return err
			}
			m, err := newMeter(fabric, args[0])
			if err != nil {
				return err
			}
			c, err := f.serving()
			if err != nil {
				return err
			}
			report := func(q *fairleadv1.ReportLoadRequest) error {
				q.ValidSeconds = uint32(max(5*every, time.Second) / time.Second)
				_, err := ask(cmd.Context(), &f, c.ReportLoad, q)
				return err
			}
			return m.run(cmd.Context(), every, report, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", defaultFabric, "the fabric's file")
	cmd.Flags().StringVar(&service, "service", "", "the path service, instead of the file's: unix:/path, https://address:port or http://127.0.0.1:port")
	cmd.Flags().DurationVar(&every, "every", 2*time.Second, "between two readings")
	return cmd
}

// meter reads what a machine's devices have sent.
type meter struct {
	node    string
	links   map[string]string // link by device
	last    map[string]uint64 // bytes by device
	lastAt  time.Time
	counted func(device string) (uint64, error)
}

func newMeter(f *topology.Fabric, node string) (*meter, error) {
	n, err := paths.New(f)
	if err != nil {
		return nil, err
	}
	i, err := n.Node(node)
	if err != nil {
		return nil, err
	}
	m := &meter{node: f.Nodes[i].Name, links: map[string]string{}, last: map[string]uint64{}, counted: sentBytes}
	for k := range f.Links {
		for _, e := range f.Links[k].Ends {
			if e.Node == i && e.Device != "" && f.Links[k].Capacity > 0 {
				m.links[e.Device] = n.LinkName(k)
			}
		}
	}
	if len(m.links) == 0 {
		return nil, fmt.Errorf("%s: the file names no device and capacity for any of its links; write devices: [eth0, …] and capacity: 10Gbit under links", node)
	}
	return m, nil
}

// sentBytes is the kernel's counter.
func sentBytes(device string) (uint64, error) {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return 0, fmt.Errorf("device %s: %w; correct the link's devices in the file", device, err)
	}
	if l.Attrs().Statistics == nil {
		return 0, fmt.Errorf("device %s: the kernel counts nothing", device)
	}
	return l.Attrs().Statistics.TxBytes, nil
}

// run reports until ctx ends. Trouble after the first report is told once each:
// a service that is started again, or a device that is away for a moment.
func (m *meter) run(ctx context.Context, every time.Duration, report func(*fairleadv1.ReportLoadRequest) error, trouble io.Writer) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	reported, told := false, ""
	for {
		q, err := m.read(time.Now())
		if err == nil && len(q.Links) > 0 {
			err = report(q)
			reported = reported || err == nil
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !reported:
			return err
		case err == nil:
			told = ""
		case told != err.Error():
			told = err.Error()
			fmt.Fprintln(trouble, "fairlead: it is tried again:", told)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// read is what was sent since the last reading; nothing the first time.
func (m *meter) read(now time.Time) (*fairleadv1.ReportLoadRequest, error) {
	q := &fairleadv1.ReportLoadRequest{}
	seconds := now.Sub(m.lastAt).Seconds()
	for device, link := range m.links {
		bytes, err := m.counted(device)
		if err != nil {
			return nil, err
		}
		if last, ok := m.last[device]; ok && bytes >= last && seconds > 0 {
			q.Links = append(q.Links, &fairleadv1.MeasuredLink{Link: link, From: m.node, BitsPerSecond: float64(bytes-last) * 8 / seconds})
		}
		m.last[device] = bytes
	}
	m.lastAt = now
	return q, nil
}
