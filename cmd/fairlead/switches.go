package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
)

// switchResult is what drain, undrain and unlock of a switch print as JSON.
type switchResult struct {
	Switch  string   `json:"switch"`
	Changes []string `json:"changes"`
}

// onSwitch has the switch called name do something and prints what it did.
func (v *verb) onSwitch(cmd *cobra.Command, s *config.Switch, t config.TLS, do func(context.Context, client) ([]string, error)) error {
	if err := cli.CheckOutput(v.output); err != nil {
		return err
	}
	if own, named := v.own(); named {
		t = own
	}
	c, err := api.Dial(s.API, t) // --api is a controller's, which said where that is
	if err != nil {
		return cli.Usage(err)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), controlTimeout)
	defer cancel()
	changes, err := do(ctx, c)
	switch {
	case connect.CodeOf(err) == connect.CodeUnavailable:
		return fmt.Errorf("%s does not answer (%s); start `fairlead switch` there", s.Name, api.ErrorText(err))
	case err != nil:
		return refused(err)
	}
	r := switchResult{Switch: s.Name, Changes: append([]string{}, changes...)}
	return cli.PrintAs(cmd.OutOrStdout(), v.output, r, func(w io.Writer) error {
		if len(r.Changes) == 0 {
			_, err := fmt.Fprintln(w, "nothing to do: it is so already")
			return err
		}
		_, err := fmt.Fprintln(w, strings.Join(r.Changes, "\n"))
		return err
	})
}

// findSwitch is the switch called name; ok is false if that is something else, or nobody
// says what there is: who asks daemons says why.
func (v *verb) findSwitch(cmd *cobra.Command, name string) (s *config.Switch, t config.TLS, ok bool) {
	looking := v.control
	looking.looks = true // a controller's word will do, where there is no file
	cfg, _, err := deployed(cmd, &looking, lookTimeout)
	v.read = looking.read
	if err != nil {
		return nil, t, false
	}
	s, ok = cfg.Switch(name)
	return s, cfg.TLS, ok
}

// isSwitch refuses a switch where a server is meant.
func isSwitch(name string) error {
	return fmt.Errorf("%[1]s is a switch, which is in no VIP: `fairlead drain %[1]s`, without a VIP, has routers send it nothing; what it serves is servers and VIPs of the file", name)
}

// norSwitch adds to a server's name that nobody has which switches there are.
func (v *verb) norSwitch(cmd *cobra.Command, err error) error {
	if connect.CodeOf(err) != connect.CodeNotFound {
		return err
	}
	cfg, _, missing := deployed(cmd, &v.control, lookTimeout)
	if missing != nil || len(cfg.Switches) == 0 {
		return err
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("%s; nor is it a switch of %s (%s)", api.ErrorText(err), v.file, switchNames(cfg)))
}

func switchNames(cfg *config.Config) string {
	var names []string
	for _, s := range cfg.Switches {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// unannounced says that no switch announces the VIPs, now that name is
// drained; empty if another one does. Of those that do not answer nobody knows.
func unannounced(name string, answers []answer) string {
	var silent []string
	for _, a := range answers {
		switch {
		case a.role != "switch" || a.name == name:
		case a.err != nil:
			silent = append(silent, a.name)
		case !a.status.GetSwitch().GetDrained():
			return ""
		}
	}
	if len(silent) > 0 {
		return fmt.Sprintf("no other switch is known to announce the VIPs now: %s does not answer; without one routers have no way to them", strings.Join(silent, ", "))
	}
	return fmt.Sprintf("no switch announces the VIPs now: routers have no way to them until `fairlead undrain %s`, or of another", name)
}

// drainSwitch withdraws a switch's announced routes, or announces them again.
func (v *verb) drainSwitch(cmd *cobra.Command, s *config.Switch, t config.TLS, undrain bool) error {
	if v.options.Force || len(v.options.Without) > 0 {
		return cli.Usagef("--force, --without: %s is a switch, and nobody else is asked when one is drained; leave them out", s.Name)
	}
	err := v.onSwitch(cmd, s, t, func(ctx context.Context, c client) ([]string, error) {
		r, err := c.DrainSwitch(ctx, connect.NewRequest(&fairleadv1.DrainSwitchRequest{Undrain: undrain}))
		if err != nil {
			return nil, err
		}
		return r.Msg.Changes, nil
	})
	if err != nil || undrain {
		return err
	}
	answers, err := askAll(cmd, &v.control, "", pollOthers)
	if err != nil {
		return nil // drained it is; the file was readable a moment ago
	}
	if note := unannounced(s.Name, answers); note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
	}
	return nil
}

// pollOthers is how long the other switches have to say whether they announce.
const pollOthers = 3 * time.Second

func newUnlockCommand() *cobra.Command {
	var v verb
	cmd := &cobra.Command{
		Use:   "unlock SWITCH",
		Short: "Have a switch that locked itself follow its servers' health again",
		Long: `A switch locks itself when most of its servers go down within a short time:
that is rather a fault of the checks, or of the switch, than of them all. It
then follows nobody's health, and says so in 'fairlead status', its log and
its metrics. When the servers have been seen to, this has it go on.`,
		Example: "  fairlead unlock sw1",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v.looks = true
			cfg, _, err := deployed(cmd, &v.control, lookTimeout)
			if err != nil {
				return err
			}
			s, ok := cfg.Switch(args[0])
			if !ok {
				names := switchNames(cfg)
				if names == "" {
					return errors.New(v.file + " names no switch")
				}
				return fmt.Errorf("%s: not among the switches of %s (%s)", args[0], v.file, names)
			}
			return v.onSwitch(cmd, s, cfg.TLS, func(ctx context.Context, c client) ([]string, error) {
				r, err := c.UnlockSwitch(ctx, connect.NewRequest(&fairleadv1.UnlockSwitchRequest{}))
				if err != nil {
					return nil, err
				}
				return r.Msg.Changes, nil
			})
		},
	}
	v.control.flags(cmd)
	cli.OutputFlag(cmd, &v.output)
	return cmd
}
