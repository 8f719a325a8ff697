package ctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon/daemontest"
	"github.com/fairlead/fairlead/rollout"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

const rest = `
secret: 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
metrics: ""
balancers: [{name: lb1, interfaces: [eth0]}]
servers: [{name: s1, address: 10.0.0.21}]
vips: [{name: web, address: 192.0.2.10, port: 80, servers: [s1]}]
`

// deployment is controllers of one file.
type deployment struct {
	t      *testing.T
	dir    string
	config *config.Config
	log    *slog.Logger
}

func newDeployment(t *testing.T, controllers string) *deployment {
	t.Helper()
	d := &deployment{t: t, dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}
	path := filepath.Join(d.dir, "fairlead.yaml")
	if err := os.WriteFile(path, []byte(controllers+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if d.config, err = config.Load(path); err != nil {
		t.Fatal(err)
	}
	return d
}

// start runs a controller; stop ends it.
func (d *deployment) start(name string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{File: d.config.File(), Name: name, StateDir: filepath.Join(d.dir, "state"), Log: d.log})
	}()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			d.t.Errorf("%s: %v", name, err)
		}
	}
	d.t.Cleanup(stop)
	return stop
}

// open waits until the store answers with a head of that version.
func (d *deployment) open(version uint64) *ledger.Ledger {
	d.t.Helper()
	s, l, err := rollout.Open(d.config, slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(d.t.Context(), daemontest.Patience)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		head, err := l.Head(once)
		cancel()
		if err == nil && head.Version == version {
			return l
		}
		if ctx.Err() != nil {
			d.t.Fatalf("the store has version %d, not %d: %v", head.Version, version, err)
		}
	}
}

func (d *deployment) append(l *ledger.Ledger) error {
	ctx, cancel := context.WithTimeout(d.t.Context(), 5*time.Second)
	defer cancel()
	head, err := l.Head(ctx)
	if err != nil {
		return err
	}
	a, err := controller.First(d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	a.Version = head.Version + 1
	_, err = l.Append(ctx, head, nil, a, ledger.Change{Who: "a test"})
	return err
}

// TestOne: the only controller, at a socket of its own, keeps what it was told over
// a restart.
func TestOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := newDeployment(t, fmt.Sprintf("controllers: [{name: c1, store: \"unix:%[1]s/s\", api: \"unix:%[1]s/a\"}]", dir))
	stop := d.start("c1")
	if err := d.append(d.open(0)); err != nil {
		t.Fatal(err)
	}
	stop()
	d.start("c1")
	records, err := d.open(1).History(t.Context(), 0, 999)
	if err != nil || len(records) != 1 || records[0].Who != "a test" {
		t.Errorf("%+v %v", records, err)
	}
}

// freePorts are addresses with ports that nobody has.
func freePorts(t *testing.T, address net.IP, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", address.String()+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// TestThree: of three controllers over TLS one may fail; two may not, and then
// nothing changes; whoever has no certificate of the deployment is not answered.
func TestThree(t *testing.T) {
	t.Parallel()
	address := net.IPv4(127, 11, byte(os.Getpid()>>8), byte(os.Getpid()))
	dir := t.TempDir()
	daemontest.Certificates(t, dir, address)
	ports := freePorts(t, address, 6)
	text := fmt.Sprintf("tls: {ca: %[1]s/ca.pem, cert: %[1]s/cert.pem, key: %[1]s/key.pem}\ncontrollers:\n", dir)
	for i := range 3 {
		text += fmt.Sprintf("- {name: c%[1]d, store: \"https://%[2]s\", peer: \"https://%[3]s\", api: \"unix:%[4]s/a%[1]d\"}\n", i+1, ports[2*i], ports[2*i+1], dir)
	}
	d := newDeployment(t, text)
	stop1, stop2 := d.start("c1"), d.start("c2")
	d.start("c3")
	l := d.open(0)
	if err := d.append(l); err != nil {
		t.Fatal(err)
	}
	stop1()
	l = d.open(1)
	deadline := time.Now().Add(daemontest.Patience)
	for d.append(l) != nil { // while the others choose a leader
		if time.Now().After(deadline) {
			t.Fatal("two of three take no change")
		}
	}
	stop2()
	if err := d.append(l); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("one of three: %v", err)
	}
	d.start("c2")
	d.open(2)

	strangers := t.TempDir()
	daemontest.Certificates(t, strangers, address)
	d.config.TLS.Cert, d.config.TLS.Key = strangers+"/cert.pem", strangers+"/key.pem"
	s, stranger, err := rollout.Open(d.config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := stranger.Head(ctx); err == nil {
		t.Error("a stranger was answered")
	}
}

// TestWho: what a file says of no controller starts none.
func TestWho(t *testing.T) {
	d := newDeployment(t, "controllers: [{name: c1}]")
	for name, want := range map[string]string{"lb1": "not among the configuration's controllers (c1)"} {
		err := Run(t.Context(), Options{File: d.config.File(), Name: name, StateDir: d.dir, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
