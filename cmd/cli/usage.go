package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What users typed wrongly, in the words of this program: those of the
// libraries name functions of Go.

// legal is what a flag of a type takes.
var legal = map[string]string{
	"bool":     "true or false",
	"duration": "a time such as 500ms, 5s or 2m",
	"float64":  "a number such as 0.5",
	"int":      "a whole number",
	"int64":    "a whole number",
	"intSlice": "whole numbers, comma-separated",
	"uint":     "a whole number from 0 on",
	"uint16":   "a whole number from 0 to 65535",
	"uint32":   "a whole number from 0 on",
	"uint64":   "a whole number from 0 on",
}

// flagError says what is wrong with a flag, and what would be right.
func flagError(_ *cobra.Command, err error) error {
	invalid := (*pflag.InvalidValueError)(nil)
	if !errors.As(err, &invalid) {
		return usageError{err}
	}
	f := invalid.GetFlag()
	must := legal[f.Value.Type()]
	switch number := (*strconv.NumError)(nil); {
	case must == "":
		return usageError{err}
	case errors.As(err, &number) && errors.Is(number.Err, strconv.ErrRange):
		return Usagef("--%s %q: is too large or too small for a number", f.Name, invalid.GetValue())
	}
	return Usagef("--%s %q: must be %s", f.Name, invalid.GetValue(), must)
}

// unexpected says so of an argument of a command that takes none: what it may
// have been meant to be.
func unexpected(cmd *cobra.Command, args []string) error {
	if cmd.HasSubCommands() {
		return CommandsAlone(cmd, args)
	}
	name := cmd.CommandPath()
	if file := cmd.Flags().Lookup("file"); file != nil && !file.Changed && len(args) == 1 {
		return Usagef("%q: no argument is taken; write `%s -f %s` if it is the file", args[0], name, args[0])
	}
	return Usagef("%q: no argument is taken; write `%s`", strings.Join(args, " "), name)
}

// DidYouMean ends a message about a word that is none of those known.
func DidYouMean(near ...string) string {
	if len(near) == 0 || near[0] == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
}

// CommandsAlone are the arguments of what has commands below it: none but
// these.
func CommandsAlone(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	return Usagef("there is no command %q%s", args[0], DidYouMean(cmd.SuggestionsFor(args[0])...))
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
				return Usage(fmt.Errorf("%w; write `%s`", err, line))
			}
			return nil
		}
		markUsage(c)
	}
}
