package host

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/fabric/pathsel"
	"github.com/fairlead/fairlead/fabric/probe"
	"github.com/fairlead/fairlead/fabric/steer"
	"github.com/fairlead/fairlead/fabric/topology"
	"github.com/fairlead/fairlead/lab/netspace"
)

// A server serves without the fabric: what is wrong with its file is a
// warning, and nothing else.
func TestAnswersWarn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(file, []byte("selector: {radix: 1}"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	for name, want := range map[string]int{"": 0, file: 1, file + "-not-there": 1} {
		a := openAnswers(&config.Config{Fabric: name}, log)
		warnings := a.warnings()
		if len(warnings) != want {
			t.Errorf("fabric %q: warnings %q, want %d", name, warnings, want)
		}
		for _, w := range warnings {
			if strings.Contains(w, "\n") || !strings.Contains(w, "probes of the fabric are not answered") {
				t.Errorf("fabric %q: warning %q", name, w)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.run(ctx); err != nil {
			t.Error(err)
		}
		a.close()
	}
}

// loopbackFabric is two hosts at a router, all on this machine's loopback.
func loopbackFabric(key byte) *topology.Fabric {
	f := &topology.Fabric{Selector: pathsel.Config{Key: [16]byte{key}, Permutation: pathsel.Feistel, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports}}
	f.Nodes = []topology.Node{{Name: "r", TTL: 64},
		{Name: "a", Host: true, TTL: 64, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{Name: "b", Host: true, TTL: 64, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.2")}}}
	for i := range 2 {
		f.Links = append(f.Links, topology.Link{Ends: [2]topology.End{{Node: 0, Port: i}, {Node: 1 + i, Port: -1}}, Cost: 1})
	}
	return f
}

// asked probes b from a until done says so.
func asked(t *testing.T, f *topology.Fabric, done func(probe.State) bool) {
	t.Helper()
	from, err := steer.New(f, "a")
	if err != nil {
		t.Fatal(err)
	}
	b := netip.MustParseAddr("127.0.0.2")
	to, err := from.Server(b, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := probe.New(probe.Config{Fabric: f, From: "a", Source: netip.MustParseAddr("127.0.0.1"), Interval: 10 * time.Millisecond,
		Targets: []probe.Target{{Host: "b", Address: b, Paths: to.Paths}}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	if !netspace.WaitFor(20*time.Second, func() bool { return done(p.States()[0]) }) {
		t.Errorf("%+v", p.States()[0])
	}
	cancel()
	running.Wait()
}

// A fabric's file that was wrong when the agent began, or whose key has changed, is
// used without a restart.
func TestAnswersReadAgain(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("this test builds a network namespace: run it as root")
	}
	name := fmt.Sprintf("fl-answers-%d", os.Getpid())
	if err := netspace.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netspace.Delete(name) })
	err := netspace.In(name, func() error {
		if err := netspace.LoopbackUp(); err != nil {
			return err
		}
		a := openAnswers(&config.Config{Fabric: filepath.Join(t.TempDir(), "not-there")}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = a.run(ctx) })
		defer func() { cancel(); running.Wait(); a.close() }()
		for key := byte(1); key <= 2; key++ {
			if changed, err := a.read(loopbackFabric(key)); !changed || err != nil || len(a.warnings()) != 0 {
				return fmt.Errorf("key %d: changed %v, %v, warnings %q", key, changed, err, a.warnings())
			}
			asked(t, loopbackFabric(key), func(s probe.State) bool { return s.Answered > 0 })
		}
		before := a.answerer.Answers()
		// As the prober saw it: probes of the new key may still be on their way.
		var answered uint64
		asked(t, loopbackFabric(1), func(s probe.State) bool {
			answered = uint64(s.Answered)
			return a.answerer.Answers().Foreign > before.Foreign
		})
		if answered != 0 {
			t.Errorf("%d probes of the old key were answered", answered)
		}
		if changed, err := a.read(loopbackFabric(2)); changed || err != nil {
			t.Errorf("the same key: %v, %v", changed, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
