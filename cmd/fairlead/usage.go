package main

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
		return usagef("--%s %q: is too large or too small for a number", f.Name, invalid.GetValue())
	}
	return usagef("--%s %q: must be %s", f.Name, invalid.GetValue(), must)
}

// unexpected says so of an argument of a command that takes none: what it may
// have been meant to be.
func unexpected(cmd *cobra.Command, args []string) error {
	if cmd.HasSubCommands() {
		return commandsAlone(cmd, args)
	}
	name := cmd.CommandPath()
	if file := cmd.Flags().Lookup("file"); file != nil && !file.Changed && len(args) == 1 {
		return usagef("%q: no argument is taken; write `%s -f %s` if it is the file", args[0], name, args[0])
	}
	return usagef("%q: no argument is taken; write `%s`", strings.Join(args, " "), name)
}

// didYouMean ends a message about a word that is none of those known.
func didYouMean(near ...string) string {
	if len(near) == 0 || near[0] == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
}
