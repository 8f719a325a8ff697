package daemon

import (
	"log"
	"log/slog"
	"strings"
)

// said is where a server of HTTP says what was wrong with callers. That is worth a record
// where everything is (debug), but for a call that panicked, which the server survives: it
// is a bug of ours, and an error.
type said struct{ log *slog.Logger }

func errorLog(l *slog.Logger) *log.Logger { return log.New(said{l}, "", 0) }

func (s said) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if strings.Contains(text, "panic serving ") { // of HTTP/1.1 and HTTP/2; a stack follows
		s.log.Error("a call panicked: please report it", "error", text)
	} else {
		s.log.Debug(text)
	}
	return len(line), nil
}
