package daemon

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/topology"
)

// answers is the agent's part in probing: where the file names a fabric, it
// answers the probes of the fabric's hosts and balancers. A server serves
// without it, so what goes wrong is a warning.
type answers struct {
	answerer *probe.Answerer // nil: none
	problem  atomic.Pointer[string]
}

// openAnswers opens the answerer in the calling thread's network namespace.
func openAnswers(cfg *config.Config, log *slog.Logger) *answers {
	a := new(answers)
	if cfg.Fabric == "" {
		return a
	}
	fabric, err := topology.Read(cfg.Fabric)
	if err == nil {
		a.answerer, err = probe.NewAnswerer(probe.AnswerConfig{Key: fabric.Selector.Key, Log: log})
	}
	if err != nil {
		log.Warn("probes are not answered", "error", err)
		a.failed(err)
	}
	return a
}

func (a *answers) failed(err error) {
	first, _, more := strings.Cut(err.Error(), "\n") // a file may have several problems
	if more {
		first += "; and more"
	}
	text := "probes of the fabric are not answered, so that balancers do not steer to this server: " + first
	a.problem.Store(&text)
}

// run answers until ctx ends.
func (a *answers) run(ctx context.Context) error {
	if a.answerer == nil {
		<-ctx.Done()
		return nil
	}
	if err := a.answerer.Run(ctx); err != nil && ctx.Err() == nil {
		a.failed(err)
	}
	return nil
}

// warnings are for the status.
func (a *answers) warnings() []string {
	if p := a.problem.Load(); p != nil {
		return []string{*p}
	}
	return nil
}

func (a *answers) close() {
	if a.answerer != nil {
		a.answerer.Close()
	}
}
