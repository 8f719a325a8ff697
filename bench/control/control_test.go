package control

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cmd/built"
)

// A test's own program is what watches: it takes the flags that `fairlead-lab` is
// started with.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[3] == "--part" {
		if err := RunPart(context.Background(), os.Args[4], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRun: a small change, with real controllers, maps and watchers: all have it, and
// every part of it is measured.
func TestRun(t *testing.T) {
	t.Parallel()
	o := Options{Servers: 40, Buckets: 1000, Watchers: 3, Aged: true, Seed: 1, Program: built.Fairlead(t)}
	var err error
	if o.Self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Versions) != 2 || r.Versions[0].What != "servers join" || r.Versions[1].What != "buckets move" {
		t.Fatalf("%+v", r.Versions)
	}
	for _, v := range r.Versions {
		if v.AppendMS <= 0 || v.ReadMS <= 0 || v.ApplyMS <= 0 || v.InForceMS < v.ReadMS+v.AcceptMS || v.ReadBytes == 0 {
			t.Errorf("%+v", v)
		}
	}
	// The first may be on no disk: the second came before it was written.
	if r.Versions[1].DiskMS <= 0 {
		t.Errorf("it is not on disk: %+v", r.Versions[1])
	}
	if r.StoreMS <= r.PlanMS || r.PlannerBytes == 0 || len(r.NodeBytes) != 3 || r.NodeBytes[0] == 0 || r.NodeDiskBytes[2] == 0 {
		t.Errorf("%+v", r)
	}
}
