// Package cli is what the command lines of both programs, fairlead and
// fairlead-lab, have in common: exit statuses, words about wrong usage, and how
// results are printed.
package cli

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
	ExitDone   = 0
	ExitFailed = 1 // refused or failed; one line on stderr says why
	ExitUsage  = 2 // wrong flags or arguments
)

// usageError marks an error as wrong usage: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage is err as one of wrong usage.
func Usage(err error) error { return usageError{err} }

// Usagef is the error of a subcommand whose arguments make no sense.
func Usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// ErrSilent makes the exit status 1 where the command has already printed
// everything that there is to say (for example doctor's table).
var ErrSilent = errors.New("failed")

// Main is a program: it carries out what the process was started for and ends it.
func Main(root *cobra.Command) {
	// The first signal asks to stop; another ends the process at once, but not
	// one of the same moment: timeout(1) signals the process and then its group.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() { <-ctx.Done(); time.Sleep(time.Second); stop() }()
	os.Exit(Run(ctx, root, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Run is a program as a function of its arguments and streams, so that tests
// can call it. It returns the exit status.
func Run(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.Args = CommandsAlone
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	markUsage(root)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitDone
	}
	if errors.Is(err, ErrSilent) {
		return ExitFailed
	}
	// One line a problem; most errors are one. Of a difference the first column counts.
	for line := range strings.Lines(strings.TrimSpace(err.Error())) {
		fmt.Fprintf(stderr, "fairlead: %s\n", LegibleText(strings.TrimRight(line, " \t\r\n")))
	}
	var usage usageError
	if errors.As(err, &usage) {
		if !cmd.Hidden { // that has no help of its own
			fmt.Fprintf(stderr, "See '%s --help'.\n", cmd.CommandPath())
		}
		return ExitUsage
	}
	return ExitFailed
}

// Terminal tells whether a person watches.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
