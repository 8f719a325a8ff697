// Command times reads `go test -json` and prints what took longest: packages,
// then tests.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

type event struct {
	Action, Package, Test string
	Elapsed               float64
}

func main() {
	var packages, tests []event
	for in := json.NewDecoder(os.Stdin); ; {
		var e event
		if err := in.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			fmt.Fprintln(os.Stderr, "read go test -json:", err)
			os.Exit(1)
		}
		switch {
		case e.Action != "pass" && e.Action != "fail":
		case e.Test == "":
			packages = append(packages, e)
		default:
			tests = append(tests, e)
		}
	}
	for _, list := range [][]event{packages, tests} {
		slices.SortFunc(list, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
		for _, e := range list[:min(len(list), 40)] {
			fmt.Printf("%8.1f s  %s  %s %s\n", e.Elapsed, e.Action, e.Package, e.Test)
		}
	}
}
