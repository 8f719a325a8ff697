package member_test

import (
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/member/membertest"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// TestOverheard: a daemon whose report is overwritten, or deleted, in the store writes
// it again; what is under a longer name is not its own.
func TestOverheard(t *testing.T) {
	t.Parallel()
	d := membertest.New(t)
	d.Start(config.RoleHost, "s1")
	link := d.Memory.Client()
	l, err := ledger.New(link, d.Config.SecretBytes())
	if err != nil {
		t.Fatal(err)
	}
	said := func() (r ledger.Report, there bool) {
		all, err := l.Reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, there = all["s1"]
		return r, there
	}
	var right ledger.Report
	d.Eventually("it reports", func() (there bool) { right, there = said(); return there && right.Version > 0 })
	const key = "daemons/s1"
	if all, _, err := link.Read(t.Context(), key); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for _, op := range []store.Op{
		{Key: key, Delete: true},
		{Key: key, Value: []byte(`{"version": 99}`)},
		{Key: key, Value: []byte(`{`)},
	} {
		rev, err := link.Commit(t.Context(), nil, op)
		if err != nil {
			t.Fatal(err)
		}
		d.Eventually("it says again what it said", func() bool {
			all, _, err := link.Read(t.Context(), key)
			r, there := said()
			return err == nil && len(all) == 1 && all[0].Rev > rev && there && r == right
		})
	}
	if _, err := link.Commit(t.Context(), nil, store.Op{Key: key + "1", Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	d.StopAll()
	d.Eventually("it goes with its lease", func() bool { _, there := said(); return !there })
}
