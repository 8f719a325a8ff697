package swtch

import (
	"testing"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// The configuration lets nobody write what a switch cannot do, and its defaults
// are those of this package.
func TestConfigurationAgrees(t *testing.T) {
	for what, ok := range map[string]bool{
		"nexthops that can be listed": vip.Faild.Row().Buckets <= ListedNexthops,
		"the announced table":         config.DefaultAnnounceTable == AnnounceTable,
		"flaps":                       config.DefaultFlaps == defaultFlaps,
		"the lock's share":            float64(config.DefaultLockPercent)/100 == defaultLockShare,
		"the lock's window":           config.DefaultLockWindow == defaultLockWindow,
	} {
		if !ok {
			t.Errorf("%s: config and fabric differ", what)
		}
	}
}
