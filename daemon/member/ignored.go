package member

import (
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/config"
)

// shownLines is how many lines of a difference a warning has.
const shownLines = 3

// compareText warns of a file that nobody goes by, when it was read: not when the store's
// text moves on, as by a drain, which changes no file. Status has it until they agree.
func (m *Member) compareText(boot *config.Config) (text string) {
	if text = m.ignored(boot); text != "" {
		m.Log.Warn(text)
	}
	m.settings.Load().ignore(text)
	return text
}

// stillIgnored is what is to be known of a file that differed from the store's text of
// before, now that there is another.
func (m *Member) stillIgnored(was *settings, boot *config.Config) string {
	if was == nil || was.unheard() == "" {
		return ""
	}
	return m.ignored(boot)
}

func (s *settings) ignore(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ignored = text
}

func (s *settings) unheard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ignored
}

// ignored says that the file of this machine has a deployment of its own that is not what
// the store wants, which is what counts: somebody edited it and expects something. "": it
// has none, or the same.
func (m *Member) ignored(boot *config.Config) string {
	t := m.desired.now()
	if t.Is.Version == 0 || boot.Bootstrap() {
		return ""
	}
	data, err := os.ReadFile(boot.File())
	if err != nil {
		return "" // it was read a moment ago
	}
	lines, err := config.Diff([]byte(t.Text), data)
	if err != nil || len(lines) == 0 {
		return ""
	}
	var in []string
	for _, line := range lines {
		if len(in) < shownLines && (strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-")) && !strings.Contains(line, "#") {
			in = append(in, line[:1]+" "+strings.TrimSpace(line[1:]))
		}
	}
	if len(in) == 0 {
		return "" // comments alone
	}
	return fmt.Sprintf("%s differs from %s, which this daemon goes by (%s, …): `fairlead plan` shows how, `fairlead apply` makes the file what all go by, and `fairlead get config` prints what they go by, for the file", boot.File(), config.OfVersion(t.Is.Version), strings.Join(in, "; "))
}
