//go:build !ctl

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/topology"
)

func newPathAnswerCommand() *cobra.Command {
	var file string
	var port uint16
	cmd := &cobra.Command{
		Use:   "answer",
		Short: "Answer probes on a host that runs no agent",
		Long: `Answer the probes of 'fairlead path probe' and of balancers, until stopped. The
agent ('fairlead host') does the same where fairlead.yaml names the fabric.

Only probes that were made with the key of fabric.yaml are answered, each once
and no longer than it was. Needs root (CAP_NET_RAW), as an answer leaves from the
port that makes it take the probe's path back.`,
		Example: "  fairlead path answer -f fabric.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fabric, err := topology.Read(file)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if port == 0 {
				return cli.Usagef("--port 0: must be 1 to 65535, as probers must know it")
			}
			a, err := probe.NewAnswerer(probe.AnswerConfig{Key: fabric.Selector.Key, Port: port, Log: log})
			if err != nil {
				return err
			}
			log.Info("answering probes", "port", port)
			err = a.Run(cmd.Context())
			n := a.Answers()
			log.Info("stopped", "answered", n.Answered, "foreign", n.Foreign, "failed", n.Failed)
			if err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("answer probes: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", defaultFabric, "the fabric's file")
	cmd.Flags().Uint16Var(&port, "port", probe.DefaultPort, "UDP port to answer on")
	return cmd
}
