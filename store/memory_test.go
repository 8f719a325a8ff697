package store_test

import (
	"testing"

	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (func() storetest.Client, func(int64) error) {
		m := store.NewMemory()
		return func() storetest.Client {
			c := m.Client()
			t.Cleanup(func() { c.Close() })
			return c
		}, m.Compact
	})
}
