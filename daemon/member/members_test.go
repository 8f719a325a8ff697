package member_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// told is a store that notes at which addresses it is to be asked.
type told struct {
	store.Store
	mu sync.Mutex
	at []string
}

func (s *told) Members(endpoints []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = endpoints
}

func (s *told) has() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.at, " ")
}

// TestMembers: a daemon whose file names one of the store's members asks all that the
// store's text names, from when it has the text, and from the start where the text is on
// its disk and the store away. It says what its file lacks.
func TestMembers(t *testing.T) {
	t.Parallel()
	d := stored(t)
	ownFile(t, d, "lb1") // c1 alone
	spy := &told{}
	role := d.Role(config.RoleBalancer, "lb1")
	start := func() {
		t.Helper()
		o := d.Options("lb1")
		open := o.OpenStore
		o.OpenStore = func(c *config.Config, log *slog.Logger) (store.Store, *ledger.Ledger, error) {
			s, l, err := open(c, log)
			spy.mu.Lock()
			defer spy.mu.Unlock()
			spy.Store, spy.at = s, nil
			return spy, l, err
		}
		d.BeginAs(o, role, "lb1")()
	}
	d.Stops["lb1"]()
	start()
	var three []string
	for i := 1; i <= 3; i++ {
		three = append(three, fmt.Sprintf(`{name: c%[1]d, store: "https://127.0.0.%[1]d:2379", peer: "https://127.0.0.%[1]d:2380"}`, i))
	}
	var text strings.Builder
	for line := range strings.Lines(string(d.Text())) {
		if strings.HasPrefix(line, "controllers") {
			first, _, _ := strings.Cut(strings.SplitN(line, "https://", 2)[1], ":2379")
			line = strings.ReplaceAll("controllers: ["+strings.Join(three, ", ")+"]\n", "127.0.0.1:", first+":")
		}
		text.WriteString(line)
	}
	if _, err := d.Coordinator().Apply(t.Context(), []byte(text.String()), rollout.Options{}); err != nil {
		t.Fatal(err)
	}
	const all = "https://127.0.0.2:2379 https://127.0.0.3:2379"
	d.Eventually("it asks all three", func() bool { return strings.HasSuffix(spy.has(), ":2379 "+all) })
	d.Eventually("it warns", func() bool { return d.Warned("lb1", "lb1.yaml does not name the store's https://127.0.0.2:2379, ") })
	d.Stops["lb1"]()
	d.Away = true
	start()
	if !strings.HasSuffix(spy.has(), ":2379 "+all) {
		t.Errorf("started without the store it asks %q", spy.has())
	}
}
