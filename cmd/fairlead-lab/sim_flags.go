package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/sim"
)

// addFlags makes flags of a scenario's.
func addFlags(f *pflag.FlagSet, flags sim.Flags) {
	for _, o := range flags {
		switch to := o.To.(type) {
		case *bool:
			f.BoolVar(to, o.Name, *to, o.Help)
		case *int:
			f.IntVar(to, o.Name, *to, o.Help)
		case *float64:
			f.Float64Var(to, o.Name, *to, o.Help)
		case *string:
			f.StringVar(to, o.Name, *to, o.Help)
		case *time.Duration:
			f.DurationVar(to, o.Name, *to, o.Help)
		case *[]int:
			f.IntSliceVar(to, o.Name, *to, o.Help)
		case *[]float64:
			f.Float64SliceVar(to, o.Name, *to, o.Help)
		case *[]string:
			f.StringSliceVar(to, o.Name, *to, o.Help)
		case *[]time.Duration:
			f.DurationSliceVar(to, o.Name, *to, o.Help)
		default:
			f.Var(to.(pflag.Value), o.Name, o.Help)
		}
	}
}

// checkInstead refuses flags whose say another one takes over.
func checkInstead(f *pflag.FlagSet, flags sim.Flags) error {
	for _, o := range flags {
		for _, name := range o.Instead {
			if f.Changed(o.Name) && f.Changed(name) {
				return fmt.Errorf("--%s %s: --%s %s says that itself; leave one of the two out", name, f.Lookup(name).Value, o.Name, f.Lookup(o.Name).Value)
			}
		}
	}
	return nil
}

// listWords are what help calls the values of a flag that takes a list, by the
// library's word.
var listWords = map[string]string{
	"float64Slice": "numbers", "intSlice": "numbers", "durationSlice": "durations", "stringSlice": "names",
}

// listRemedies are what would be right, by our word.
var listRemedies = map[string]string{
	"numbers": "write numbers with commas between, as 2,10", "durations": "write durations with commas between, as 5ms,1s",
}

// listValue is a flag's list with words that are no names of Go's types and
// errors that are none of its functions'.
type listValue struct {
	pflag.Value
	word string
}

func (l listValue) Type() string { return l.word }

// Set takes values with commas between; nothing at all is the empty list.
func (l listValue) Set(s string) error {
	if list, ok := l.Value.(pflag.SliceValue); ok && s == "" {
		return list.Replace(nil)
	}
	err := l.Value.Set(s)
	if remedy := listRemedies[l.word]; err != nil && remedy != "" {
		return errors.New(remedy)
	}
	return err
}

// plainList has help and errors of a list say what it holds.
func plainList(f *pflag.Flag) {
	word, ok := listWords[f.Value.Type()]
	if !ok {
		return
	}
	if f.Value.Type() == "float64Slice" {
		f.DefValue = zeros.ReplaceAllString(f.DefValue, "$1")
	}
	if f.DefValue == "[]" {
		f.DefValue = "" // help leaves it out
	}
	f.Usage = strings.ReplaceAll(f.Usage, "`", "") // one word for lists everywhere
	f.Value = listValue{f.Value, word}
}

// zeros at the end of a fraction, which the library writes: 1.500000, 5.000000.
var zeros = regexp.MustCompile(`(\.\d*?[1-9])0+\b|\.0+\b`)
