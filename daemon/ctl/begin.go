package ctl

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/rollout"
)

const (
	beginRest = 200 * time.Millisecond
	// beginPatience is how long agents that do not answer are waited for.
	beginPatience = 5 * time.Second
)

// begin makes the first version of a deployment whose file names no controller, so
// that its only balancer needs no `fairlead apply`: the file's assignment, or the newest
// that daemons of before have. Of agents that are not there yet none can have one that
// the balancer beside this controller does not know.
func begin(ctx context.Context, c *rollout.Coordinator, file string, log *slog.Logger) error {
	since := time.Now()
	told := ""
	for {
		head, err := c.Ledger.Head(ctx)
		if err == nil && head.Version > 0 {
			return nil
		}
		var ch *rollout.Change
		var text []byte
		if err == nil {
			text, _, err = yamlfile.ReadFile(file)
		}
		if err == nil {
			ch, err = c.Apply(ctx, text, rollout.Options{})
		}
		if err != nil && ch != nil && time.Since(since) > beginPatience && !frontSilent(c, ch) {
			ch, err = c.Apply(ctx, text, rollout.Options{Force: true})
		}
		if err == nil {
			log.Info("the first version is made", "version", ch.To, "changes", ch.Lines)
			return nil
		}
		if told != err.Error() && time.Since(since) > beginPatience {
			told = err.Error()
			log.Warn("there is no first version yet; trying on", "error", err)
		}
		if !daemon.Sleep(ctx, beginRest) {
			return nil
		}
	}
}

// frontSilent: the balancer or switch beside this controller does not answer.
func frontSilent(c *rollout.Coordinator, ch *rollout.Change) bool {
	return slices.ContainsFunc(ch.Silent, func(d *rollout.Daemon) bool { return d.Kind != rollout.Host })
}
