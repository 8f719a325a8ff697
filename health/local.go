package health

import (
	"errors"
	"slices"
	"syscall"
)

// Local is the error of a check that this machine could not make: it says
// nothing of the server.
type Local struct{ error }

// Unwrap is the cause.
func (l Local) Unwrap() error { return l.error }

// localCauses are errors of a check's own socket: no descriptor (EMFILE,
// ENFILE), no memory, no free port, or a rule of this machine that forbids it
// (EPERM: a packet filter's drop on the way out, or CAP_NET_ADMIN missing).
// None of them comes by the network.
var localCauses = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EPERM, syscall.EACCES}

// isLocal says whether a check failed without having asked.
func isLocal(err error) bool {
	_, local := errors.AsType[Local](err)
	return local || slices.ContainsFunc(localCauses, func(cause error) bool { return errors.Is(err, cause) })
}

// unasked counts a check that was not made; the state stays.
func (c *Checker) unasked(w *worker, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notAsked++
	w.report.Local = err.Error()
}

// Unasked is how many checks could not be made so far, of how many targets the
// last one was such, and the cause of one.
func (c *Checker) Unasked() (checks uint64, targets int, cause string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if w.report.Local != "" {
			targets++
			cause = max(cause, w.report.Local) // always the same of several
		}
	}
	return c.notAsked, targets, cause
}
