package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// OutputFlag adds -o table|json|yaml. JSON field names are stable.
func OutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "how to print: table, json or yaml")
}

// CheckOutput refuses an -o that PrintAs would refuse, before anything is done.
func CheckOutput(output string) error {
	return PrintAs(io.Discard, output, nil, func(io.Writer) error { return nil })
}

// PrintAs prints value as -o asks; table prints the human form.
func PrintAs(w io.Writer, output string, value any, table func(io.Writer) error) error {
	switch output {
	case "table":
		return table(Legible(w))
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(value)
	case "yaml":
		// By way of JSON, so that both have the same fields, embedded ones too.
		data, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
		var n yaml.Node // JSON is YAML, and a node keeps the order
		if err := yaml.Unmarshal(data, &n); err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
		plainStyle(&n)
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		e.CompactSeqIndent()
		return e.Encode(&n)
	}
	return Usagef("--output %q: must be table, json or yaml", output)
}

// plainStyle drops the brackets and quotes that n has from JSON.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plainStyle(c)
	}
}
