package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
)

// waiting is drain --wait: until the server's agent counts no connection any more.
type waiting struct {
	asked   bool
	timeout time.Duration
}

// waitEvery is how often it is counted.
const waitEvery = 500 * time.Millisecond

func (w *waiting) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.asked, "wait", false, "wait until the server has no connection left, as its agent counts them")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 0, "with --wait: give up after this time, with exit status 1 (default: never)")
}

func (w *waiting) check(cmd *cobra.Command) error {
	switch {
	case !w.asked && cmd.Flags().Changed("timeout"):
		return cli.Usagef("--timeout: goes with --wait")
	case w.timeout < 0:
		return cli.Usagef("--timeout %s: must not be negative", w.timeout)
	}
	return nil
}

// until waits for server, in one VIP or ("") in all.
func (w *waiting) until(cmd *cobra.Command, c *control, vip, server string) error {
	ctx := cmd.Context()
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	progress := cli.Terminal(cmd.ErrOrStderr())
	defer func() {
		if progress {
			fmt.Fprintln(cmd.ErrOrStderr())
		}
	}()
	looks := *c
	looks.changes, looks.read = false, nil
	var all []namedControl // asked over the same connections, as long as they answer
	left, unknown := uint64(0), "nobody was asked yet"
	for {
		var err error
		if all == nil {
			if all, err = looks.controllers(cmd); err != nil { // by the file as it is now
				return err
			}
		}
		resp, err := askControls(ctx, &looks, all, lookTimeout, func(ctx context.Context, c controlClient) (*connect.Response[fairleadv1.DescribeResponse], error) {
			return c.Describe(ctx, connect.NewRequest(&fairleadv1.DescribeRequest{Server: server}))
		})
		switch {
		case err != nil && connect.CodeOf(err) == connect.CodeNotFound:
			return nil // it was removed meanwhile
		case err != nil && over(ctx): // what was said before stands
		case err != nil:
			unknown, all = api.ErrorText(err), nil
		default:
			left, unknown = connectionsOf(resp, vip)
		}
		if unknown == "" && left == 0 {
			return nil
		}
		if progress {
			says := connectionsLeft(left)
			if unknown != "" {
				says = "connections are not known: " + unknown
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "\r\033[K%s: %s", server, says)
		}
		if !sleep(ctx, waitEvery) {
			break
		}
	}
	if unknown != "" {
		return fmt.Errorf("%s is drained, and how many connections are left there is not known: %s", server, unknown)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s is drained, and %s after %s; run it again to wait on, or `fairlead remove --force`: its slot rests then, and what still comes is forwarded to it for as long as it runs", server, connectionsLeft(left), w.timeout)
	}
	return fmt.Errorf("%s is drained, and %s", server, connectionsLeft(left))
}

func connectionsLeft(n uint64) string {
	if n == 1 {
		return "1 connection is left"
	}
	return fmt.Sprintf("%d connections are left", n)
}

// over: ctx has ended, or is about to, which a controller that is told when notices first.
func over(ctx context.Context) bool {
	end, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && time.Until(end) < waitEvery
}

// connectionsOf sums up what is left, and says why if that is not known.
func connectionsOf(resp *fairleadv1.DescribeResponse, vip string) (left uint64, unknown string) {
	for _, v := range resp.Vips {
		if vip != "" && v.Name != vip {
			continue
		}
		for _, s := range v.Slots {
			if !s.Counted {
				unknown = s.Uncounted
			}
			left += s.Connections
		}
	}
	return left, unknown
}

// sleep says whether ctx still goes on after d.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
