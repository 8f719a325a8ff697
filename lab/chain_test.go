package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// small runs a small scenario in a lab of its own and fails with its verdict.
func small(t *testing.T, o RunOptions) *Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", ""))
	o.Lab = fmt.Sprint(name[:min(len(name), 12)], os.Getpid())
	o.Program = testProgram(t)
	result, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range result.Verdict {
		t.Error(v)
	}
	for _, f := range result.Failures {
		t.Logf("%+v", f)
	}
	t.Logf("%+v %v %v", result.Runs, result.Counters, result.Reasons)
	return result
}

// TestChurnBeamer and TestChurnFaild are short churns of the schemes whose
// servers pass packets on to each other: no more changes that force buckets
// than a chain is long.
func TestChurnBeamer(t *testing.T) {
	t.Parallel()
	result := small(t, RunOptions{Scenario: "churn", Seed: 3, Schemes: []string{"beamer"}, Scale: Scale{Connections: 150, Slot: 1200 * time.Millisecond,
		Steps: []string{"add", "drain", "reshuffle", "fail", "kill lb", "recover", "join lb"}}})
	if result.Reasons["forward_previous"] == 0 {
		t.Error("no packet was passed on")
	}
}

func TestChurnFaild(t *testing.T) {
	t.Parallel()
	result := small(t, RunOptions{Scenario: "churn", Seed: 3, Schemes: []string{"faild"}, Scale: Scale{Connections: 150, Slot: 1200 * time.Millisecond,
		Steps: []string{"add", "drain", "reshuffle", "kill switch", "crash", "join switch", "drain switch"}}})
	if result.Reasons["forward_previous"] == 0 {
		t.Error("no packet was passed on")
	}
}
