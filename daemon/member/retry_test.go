package member

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// begun is a balancer that has read its file, which names certificates that are not there
// yet, and a ledger of its store.
func begun(t *testing.T) (m *Member, l *ledger.Ledger, text string) {
	t.Helper()
	dir := t.TempDir()
	text = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
tls: {ca: DIR/ca.pem, cert: DIR/cert.pem, key: DIR/key.pem}
controllers: [{name: c1, store: "https://127.0.0.1:2379", peer: "https://127.0.0.1:2380"}]
balancers: [{name: lb1, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.0.2}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1]}]
`
	text = strings.ReplaceAll(text, "DIR", dir)
	file := filepath.Join(dir, "fairlead.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	memory := store.NewMemory()
	open := func(cfg *config.Config, _ *slog.Logger) (store.Store, *ledger.Ledger, error) {
		client := memory.Client()
		l, err := ledger.New(client, cfg.SecretBytes())
		return client, l, err
	}
	m = newMember(Options{File: file, Name: "lb1", StateDir: dir, Log: slog.New(slog.DiscardHandler), OpenStore: open}, Role{
		Is: config.RoleBalancer, Fixed: func(config.Self) []Setting { return nil },
		Service: func(m *Member) fairleadv1connect.FairleadHandler { return Service{m} },
	})
	m.life = t.Context()
	if err := m.read(); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.State, err = daemon.OpenState(dir, "lb1", daemon.UnsavedForce, m.Log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.State.Close() })
	first, err := controller.First(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	m.force.Store(&inForce{Assignment: first})
	return m, m.stored.ledger, text
}

func wants(t *testing.T, l *ledger.Ledger, a *controller.Assignment, text string) ledger.Head {
	t.Helper()
	head, err := l.Head(t.Context())
	if err == nil {
		a = a.Clone()
		a.Version = head.Version + 1
		head, err = l.Append(t.Context(), head, nil, a, ledger.Change{Who: "a test", Text: []byte(text)})
	}
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// TestDesiredTriedAgain: a text that a daemon cannot use for what is missing on its machine
// is tried again, and in force when that is there; a text that is wrong is not, until a
// reload.
func TestDesiredTriedAgain(t *testing.T) {
	m, l, text := begun(t)
	a := m.force.Load().Assignment
	more := strings.Replace(text, "servers: [{", `servers: [{name: s9, address: 10.0.0.9, api: "https://127.0.0.9:7412"}, {`, 1)
	head := wants(t, l, a, more)
	follow := func() error { return m.followDesired(t.Context(), l, head.Desired) }
	warned := func() string { return strings.Join(m.desired.warnings(), "\n") }
	for range 2 {
		if err := follow(); err == nil || !strings.Contains(warned(), "tried again") || !strings.Contains(warned(), "ca.pem") {
			t.Fatalf("without certificates: %v, %q", err, warned())
		}
	}
	daemontest.Certificates(t, filepath.Dir(m.Options.File), net.IPv4(127, 0, 0, 9))
	if err := follow(); err != nil || warned() != "" || m.desired.now().Is != head.Desired {
		t.Fatalf("with certificates: %v, %q", err, warned())
	}
	// What cannot be had from the store is told, too.
	missing := head.Desired
	missing.Version, missing.Token = missing.Version+1, "nosuch"
	if err := m.followDesired(t.Context(), l, missing); err == nil || !strings.Contains(warned(), "tried again") {
		t.Errorf("a text that is not there: %v, %q", err, warned())
	}

	head = wants(t, l, a, strings.ReplaceAll(more, "lb1", "lb2"))
	if err := follow(); err != nil || !strings.Contains(warned(), "cannot be used") || m.desired.refused() != head.Desired {
		t.Fatalf("of another machine: %v, %q", err, warned())
	}
	tried := false
	m.stored.anew = func() { tried = true }
	if _, err := m.reload(); err != nil || !tried || m.desired.refused() != (ledger.Desired{}) {
		t.Errorf("reload: %v; tried again: %v", err, tried)
	}
}

// TestAwayOver: that the store did not answer when a daemon began is no reason any more
// when it has answered.
func TestAwayOver(t *testing.T) {
	m, l, text := begun(t)
	wants(t, l, m.force.Load().Assignment, text)
	m.stored.away = errors.New("no answer")
	ctx, cancel := context.WithTimeout(t.Context(), daemontest.Patience)
	defer cancel()
	m.life = ctx
	if _, _, err := m.await(m.settings.Load().boot, "lb1", errors.New("not in the file")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.stored.newest(ctx, nil); err != nil {
		t.Errorf("a moment later: %v", err)
	}
}
