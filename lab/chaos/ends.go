package chaos

import (
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab"
)

// How processes end that no fault ends, and who may.

// touch is what faults have done to a process.
type touch int

const (
	// a controller's disk failed, and all was well since: what became of it its etcd may
	// find later
	scarred touch = iota + 1
	// until all is well again it may end for it
	shaken
	// its disk took nothing, or its files were damaged
	damaged
)

// touch notes that a fault is done to a process.
func (w *world) touch(p lab.Process, is touch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.touched[p.Name] = max(w.touched[p.Name], is)
	if is == damaged && slices.Contains(w.lab.ControllerProcesses(), p) {
		w.scars[p.Name] = true
	}
}

// calm notes that all is well.
func (w *world) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.touched)
	for name := range w.scars {
		w.touched[name] = scarred
	}
}

// ended notes that a process ended by itself: when, and what it said last.
func (w *world) ended(p lab.Process, text, said string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restarts = append(w.restarts, text)
	switch is := w.touched[p.Name]; {
	case is == 0:
		w.wrong = append(w.wrong, "ended by itself, though no fault touched it: "+text)
	case is == scarred && !ofStore(said):
		w.wrong = append(w.wrong, "ended by itself, and not by its store, though all was well since its disk failed: "+text)
	}
}

// panics says which processes ended in a way that none must. An etcd panics where its disk
// fails it; nothing else may, whatever it finds.
func (w *world) panics() error {
	for _, p := range w.processes() {
		log, err := w.lab.Log(p)
		if err != nil {
			return err
		}
		w.mu.Lock()
		scarred := w.scars[p.Name]
		w.mu.Unlock()
		for _, is := range panicked(log) {
			if !scarred || !is.etcd {
				w.say("%s: %s", p.Name, is.text)
			}
		}
	}
	return nil
}

// lastWords is what a log has behind its last record: the error that the process ended
// with, or its panic.
func lastWords(log []byte) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "time=") {
			lines = lines[i+1:]
			break
		}
	}
	return strings.Join(lines, "\n")
}

// ofStore tells whether a controller's last words are that its store does not go on.
func ofStore(said string) bool {
	all := panicked([]byte(said))
	if len(all) == 0 {
		return strings.HasPrefix(said, "fairlead: ") && strings.Contains(said, "store member")
	}
	return !slices.ContainsFunc(all, func(p panicking) bool { return !p.etcd })
}

// panicking is a panic, or what the Go runtime ends a process for.
type panicking struct {
	text string
	etcd bool // etcd's code is who panicked
}

// panicked finds all in a log, those too that a server survived.
func panicked(log []byte) (all []panicking) {
	open := false // the last one's code is not known yet
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSuffix(line, "\n")
		switch frame, isCall := called(line); {
		case strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "panic serving "):
			all, open = append(all, panicking{text: line[:min(len(line), 300)]}), true // a call's has its stack in it
		case open && isCall:
			all[len(all)-1].etcd, open = strings.HasPrefix(frame, "go.etcd.io/"), false
		}
	}
	return all
}

// called is the function of a line of a stack, if it is one of a module; who only carried
// the panic out is left away.
func called(line string) (function string, is bool) {
	function, _, is = strings.Cut(line, "(")
	module, _, path := strings.Cut(function, "/")
	return function, is && path && strings.Contains(module, ".") && !strings.ContainsAny(module, " \t") && module != "go.uber.org"
}
