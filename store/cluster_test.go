package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/store"
	"github.com/fairlead/fairlead/store/embedded"
	"github.com/fairlead/fairlead/store/storetest"
)

func TestCluster(t *testing.T) {
	dir, err := os.MkdirTemp("", "store") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := embedded.Start(t.Context(), embedded.Options{
		Name: "one", Dir: filepath.Join(dir, "data"),
		Client: []string{"unix://" + dir + "/client"}, Peer: []string{"unix://" + dir + "/peer"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	storetest.Run(t, storetest.Remote(s.Endpoints(), nil))
}

// TestOpen: what is wrong with an address is said at once, and where nobody answers
// when the context ends.
func TestOpen(t *testing.T) {
	for _, endpoints := range [][]string{nil, {"192.0.2.1:2379"}, {"tcp://192.0.2.1:2379"}, {"unix:///a", "http://192.0.2.1:2379"}} {
		if _, err := store.Open(store.Options{Endpoints: endpoints}); err == nil {
			t.Errorf("%q: %v", endpoints, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	nobody := "unix://" + t.TempDir() + "/nobody"
	s, err := store.Open(store.Options{Endpoints: []string{nobody}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, _, err = s.Read(ctx, "")
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), nobody) || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}
