package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// outputFlag adds -o table|json|yaml. JSON field names are stable.
func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "table", "how to print: table, json or yaml")
}

// checkOutput refuses an -o that printAs would refuse, before anything is done.
func checkOutput(output string) error {
	return printAs(io.Discard, output, nil, func(io.Writer) error { return nil })
}

// printAs prints value as -o asks; table prints the human form.
func printAs(w io.Writer, output string, value any, table func(io.Writer) error) error {
	switch output {
	case "table":
		return table(w)
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
	return usagef("--output %q: must be table, json or yaml", output)
}

// plainStyle drops the brackets and quotes that n has from JSON.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		plainStyle(c)
	}
}

// fileFlag adds -f, the configuration file, as every command has it.
func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "/etc/fairlead/fairlead.yaml", "configuration file")
}
