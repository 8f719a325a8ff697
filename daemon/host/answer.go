package host

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/member"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/topology"
)

// answers is the agent's part in probing: where the file names a fabric, it
// answers the probes of the fabric's hosts and balancers. A server serves
// without it, so what goes wrong is a warning.
type answers struct {
	log      *slog.Logger
	opened   chan struct{} // closed when there is an answerer
	answerer *probe.Answerer
	key      [16]byte
	problem  atomic.Pointer[string]
}

// openAnswers opens the answerer in the calling thread's network namespace.
func openAnswers(cfg *config.Config, log *slog.Logger) *answers {
	a := &answers{log: log, opened: make(chan struct{})}
	if cfg.Fabric == "" {
		return a
	}
	fabric, err := topology.Read(cfg.Fabric)
	if err == nil {
		_, err = a.read(fabric)
	}
	if err != nil {
		log.Warn("probes are not answered", "error", err)
		a.failed(err)
	}
	return a
}

// read takes over what the fabric's file says, the first time or again: probes are
// answered by its key, and by no other any more.
func (a *answers) read(f *topology.Fabric) (changed bool, err error) {
	key := f.Selector.Key
	switch {
	case a.answerer == nil:
		if a.answerer, err = probe.NewAnswerer(probe.AnswerConfig{Key: key, Log: a.log}); err != nil {
			a.answerer = nil
			return false, err
		}
		close(a.opened)
		a.problem.Store(nil)
	case a.key == key:
		return false, nil
	default:
		a.answerer.SetKey(key)
	}
	a.key = key
	return true, nil
}

func (a *answers) failed(err error) {
	text := "probes of the fabric are not answered, so that balancers do not steer to this server: " + member.OneLine(err)
	a.problem.Store(&text)
}

// run answers until ctx ends.
func (a *answers) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.opened:
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

// close is called when run has returned, and nobody reads any more.
func (a *answers) close() {
	if a.answerer != nil {
		a.answerer.Close()
	}
}
