package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
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
		if data, err = yaml.JSONToYAML(data); err != nil {
			return fmt.Errorf("print as yaml: %w", err)
		}
		_, err = w.Write(data)
		return err
	}
	return usagef("--output %q: must be table, json or yaml", output)
}

// fileFlag adds -f, the configuration file, as every command has it.
func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", "/etc/fairlead/fairlead.yaml", "configuration file")
}
