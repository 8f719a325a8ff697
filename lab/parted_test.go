package lab

import (
	"testing"
	"time"
)

// TestParted: one of the scenario's partitions.
func TestParted(t *testing.T) {
	t.Parallel()
	result := small(t, RunOptions{Scenario: "parted", Seed: 1, Schemes: []string{"cheetah"}, IPv4: true,
		Scale: Scale{Connections: 60, Slot: 3 * time.Second, Steps: []string{"lb2 server2"}}})
	if len(result.Partitions) != 1 || result.Partitions[0].Version != 2 || result.Partitions[0].Digests != 1 {
		t.Errorf("%+v", result.Partitions)
	}
}
