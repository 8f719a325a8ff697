package ledger

import (
	"testing"

	"github.com/fairlead/fairlead/store"
)

// TestReportsAreLegible: what somebody with a machine's certificate writes as a report moves
// no terminal.
func TestReportsAreLegible(t *testing.T) {
	client := store.NewMemory().Client()
	l := open(t, client, secret)
	for name, value := range map[string]string{
		"s1": `{"kind": 1, "version": 7, "error": "a\u001b]0;b\u0007\u009b2J\r\nc"}`, "s2\x1b[2J": `{"kind": 1}`, "s3\xff": `{"kind": 1}`, "s4": `{`,
	} {
		if _, err := client.Commit(t.Context(), nil, store.Op{Key: ReportsKey + name, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := l.Reports(t.Context())
	if want := (Report{Kind: 1, Version: 7, Error: "a ]0;b  2J \nc"}); err != nil || len(all) != 1 || all["s1"] != want {
		t.Errorf("%+v %v", all, err)
	}
}
