// Command fairlead is the whole product in one program: the load balancer's
// daemon, the servers' agent, and everything that looks at them or changes
// them. This file holds the root command; each subcommand has its own file.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Exit statuses that scripts can rely on.
const (
	exitDone   = 0
	exitFailed = 1 // refused or failed; one line on stderr says why
	exitUsage  = 2 // wrong flags or arguments
)

// usageError marks an error as wrong usage: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef is the error of a subcommand whose arguments make no sense.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// errSilent makes the exit status 1 where the command has already printed
// everything that there is to say (for example doctor's table).
var errSilent = errors.New("failed")

func main() {
	// The first signal asks to stop; another ends the process at once, but not
	// one of the same moment: timeout(1) signals the process and then its group.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { <-ctx.Done(); time.Sleep(time.Second); stop() }()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program as a function of its arguments and streams, so that
// tests can call it. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	if errors.Is(err, errSilent) {
		return exitFailed
	}
	// One line a problem; most errors are one.
	for line := range strings.Lines(strings.TrimSpace(err.Error())) {
		fmt.Fprintf(stderr, "fairlead: %s\n", strings.TrimSpace(line))
	}
	var usage usageError
	if errors.As(err, &usage) {
		fmt.Fprintf(stderr, "See '%s --help'.\n", cmd.CommandPath())
		return exitUsage
	}
	return exitFailed
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "A load balancer for Linux that never breaks a connection",
		Long: `Fairlead balances TCP and UDP connections over servers (layer 4, in XDP) and
keeps every connection on its server while servers, balancers and keys come
and go.

Start with one file, fairlead.yaml, that names your balancers, servers and
VIPs (served addresses). The same file serves every machine:

  fairlead check -f fairlead.yaml        is the file right?
  fairlead lb -f fairlead.yaml           on each balancer
  fairlead host -f fairlead.yaml         on each server
  fairlead switch -f fairlead.yaml       on each switch (scheme faild)
  fairlead router -f fabric.yaml         on each router of a fabric (CFLB)
  fairlead status -f fairlead.yaml       what they do

To see it work on this machine alone, without any set-up: fairlead demo.

Exit status: 0 done, 1 refused or failed (one line on stderr says why and
what to do), 2 wrong usage.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          commandsAlone,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	addCommands(root)
	markUsage(root)
	return root
}

// commandsAlone are the arguments of what has commands below it: none but
// these.
func commandsAlone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	return usagef("there is no command %q%s", args[0], didYouMean(cmd.SuggestionsFor(args[0])...))
}

// markUsage makes every complaint about the number of arguments a usage
// error, whatever the subcommand's own Args returns, and says what to write.
func markUsage(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		check := c.Args
		if check == nil {
			check = cobra.ArbitraryArgs
		}
		c.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if said := (usageError{}); errors.As(err, &said) {
				return err
			}
			if err != nil && check(cmd, nil) == nil && check(cmd, args[:1]) != nil { // it takes none
				return unexpected(cmd, args)
			}
			if err != nil {
				line := cmd.Use
				if cmd.HasParent() {
					line = cmd.Parent().CommandPath() + " " + line
				}
				return usageError{fmt.Errorf("%w; write `%s`", err, line)}
			}
			return nil
		}
		markUsage(c)
	}
}
