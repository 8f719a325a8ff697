package rollout

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// TestPlanOnlyKnown: a plan for somebody who may only look asks nobody where the store
// does not have him, and says so; one for somebody who may all does ask.
func TestPlanOnlyKnown(t *testing.T) {
	f := newFleet(t, strings.Replace(twoOfEach, "policy: wrr", "scheme: jet", 1))
	c := f.coordinator()
	if _, err := c.Apply(t.Context(), f.text, Options{}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var dialled []string
	dial := c.dialTo
	c.dialTo = func(endpoint string, files config.TLS) (fairleadv1connect.FairleadClient, error) {
		mu.Lock()
		defer mu.Unlock()
		dialled = append(dialled, endpoint)
		return dial(endpoint, files)
	}
	const elsewhere = "unix:/somewhere/else"
	api := config.DefaultAPI("s1")
	for name, text := range map[string]string{
		"a new server":     strings.Replace(string(f.text), "servers: [{", `servers: [{name: s9, address: 10.0.1.9, api: "`+elsewhere+`"}, {`, 1),
		"a server's place": strings.Replace(string(f.text), "name: s1,", `name: s1, api: "`+elsewhere+`",`, 1),
	} {
		if text == string(f.text) {
			t.Fatal("the text is the same")
		}
		for _, only := range []bool{true, false} {
			dialled = nil
			ch, err := c.PlanFile(t.Context(), []byte(text), Options{OnlyKnown: only, Force: true})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if asked := slices.Contains(dialled, elsewhere); asked == only {
				t.Errorf("%s: asked %q, only where the store has them: %v", name, dialled, only)
			}
			if told := strings.Contains(strings.Join(ch.Notes, "\n"), "is not asked at "+elsewhere); told != only {
				t.Errorf("%s: notes %q", name, ch.Notes)
			}
			if name == "a new server" && !slices.Contains(dialled, api) {
				t.Errorf("%s: %q, and not %s", name, dialled, api)
			}
		}
	}
}
