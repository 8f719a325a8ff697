// Package simtest gives scenarios their options as users write them, for tests.
package simtest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fairlead/fairlead/sim"
)

// Check sets options, each written as --name value or --name=value, and says
// what is wrong with them.
func Check(s sim.Scenario, args ...string) error {
	var flags sim.Flags
	s.Flags(&flags)
	given := map[string]string{}
	for len(args) > 0 {
		name, value, one := strings.Cut(strings.TrimPrefix(args[0], "--"), "=")
		if args = args[1:]; !one {
			value, args = args[0], args[1:]
		}
		known := false
		for _, f := range flags {
			if f.Name != name {
				continue
			}
			known = true
			given[name] = value
			if err := set(f.To, value); err != nil {
				return fmt.Errorf("--%s %s: %w", name, value, err)
			}
		}
		if !known {
			return fmt.Errorf("there is no --%s", name)
		}
	}
	for _, f := range flags {
		for _, name := range f.Instead {
			if value, both := given[name]; both && given[f.Name] != "" {
				return fmt.Errorf("--%s %s: --%s says that itself", name, value, f.Name)
			}
		}
	}
	return s.Check()
}

func set(to any, value string) (err error) {
	switch to := to.(type) {
	case interface{ Set(string) error }:
		return to.Set(value)
	case *string:
		*to = value
	case *time.Duration:
		*to, err = time.ParseDuration(value)
	default:
		v := reflect.ValueOf(to).Elem()
		if v.Kind() != reflect.Slice {
			_, err = fmt.Sscan(value, to)
			return err
		}
		v.SetZero()
		if value == "" {
			return nil
		}
		for part := range strings.SplitSeq(value, ",") {
			element := reflect.New(v.Type().Elem())
			if err := set(element.Interface(), part); err != nil {
				return err
			}
			v.Set(reflect.Append(v, element.Elem()))
		}
	}
	return err
}
