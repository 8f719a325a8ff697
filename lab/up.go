package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/lab/experiment"
	"github.com/fairlead/fairlead/lab/netspace"
)

// bpffsRoot is where daemons pin; a daemon's own folder has its name.
const bpffsRoot = "/sys/fs/bpf/fairlead"

// Up builds a lab and starts everything in it. If owned, the lab belongs to
// this process: another one that finds the process gone takes it down. On an
// error everything made so far is removed.
func Up(ctx context.Context, o Options, owned bool) (*Lab, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	if err := needRoot(); err != nil {
		return nil, err
	}
	RemoveStale()
	l := &Lab{Options: o, Kernel: experiment.Kernel()}
	if l.Clocks {
		l.clocks = new(sync.Map)
	}
	if owned {
		l.Owner, l.OwnerStart = os.Getpid(), netspace.ProcessStart(os.Getpid())
	}
	if err := os.MkdirAll(Root, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(l.Dir(), 0o700); errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("a lab %q is there already; take it down first: fairlead lab down %s", o.Name, o.Name)
	} else if err != nil {
		return nil, err
	}
	if err := l.up(ctx); err != nil {
		return nil, errors.Join(err, Down(o.Name))
	}
	return l, nil
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab needs root for network namespaces and BPF; run it with sudo")
	}
	return nil
}

func (l *Lab) up(ctx context.Context) error {
	// Before anything else is made, so that `lab down` knows of it.
	if err := l.save(); err != nil {
		return err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	l.secret = hex.EncodeToString(secret)
	if err := l.writeConfig(); err != nil {
		return err
	}
	if err := l.certify(ctx); err != nil {
		return err
	}
	if err := l.build(); err != nil {
		return err
	}
	if err := l.expose(); err != nil {
		return err
	}
	if err := l.startServers(ctx); err != nil {
		return err
	}
	if l.Plain {
		return l.setRoutes(nil, 1)
	}
	return l.comes(ctx)
}

// comes starts Fairlead: controllers, agents, balancers or switches, which get the first
// version, and then the router's packets.
func (l *Lab) comes(ctx context.Context) error {
	var active []int
	for n := 1; n <= l.ActiveLBs; n++ {
		if !slices.Contains(l.SecondTier, n) {
			active = append(active, n)
		}
	}
	fronts := l.fronts()[:l.ActiveLBs]
	if err := l.mountDisks(); err != nil {
		return err
	}
	if err := l.startControllers(); err != nil {
		return err
	}
	for _, m := range append(l.servers(), fronts...) {
		if err := l.launch(m); err != nil {
			return err
		}
	}
	if err := l.firstVersion(ctx); err != nil {
		return err
	}
	for _, m := range append(l.servers(), fronts...) {
		if err := l.awaitDaemon(ctx, m); err != nil {
			return err
		}
	}
	if !l.BGP && !l.L2 {
		if err := l.setRoutes(active, 1); err != nil {
			return err
		}
	}
	return l.awaitHealth(ctx, fronts)
}

// writeConfig writes the lab's file, and reads it, but one of before there was a store.
func (l *Lab) writeConfig() error {
	if err := os.WriteFile(l.ConfigPath(), []byte(l.config(l.secret)), 0o600); err != nil || l.Before {
		return err
	}
	if _, err := config.Load(l.ConfigPath()); err != nil {
		return fmt.Errorf("this lab's configuration is refused: %w", err)
	}
	return nil
}

// awaitHealth waits until every front gives every active server new
// connections.
func (l *Lab) awaitHealth(ctx context.Context, fronts []string) error {
	for _, m := range fronts {
		missing := ""
		healthy := netspace.WaitFor(readyWait, func() bool {
			status, err := l.daemonStatus(ctx, m)
			if err != nil {
				missing = err.Error()
				return ctx.Err() != nil
			}
			missing = without(status)
			return missing == ""
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !healthy {
			return fmt.Errorf("%s gives no new connections to %s", m, missing)
		}
	}
	return nil
}

// without names the first active server that gets no new connections.
func without(s *fairleadv1.GetStatusResponse) string {
	if len(s.NotReady) > 0 {
		return "anybody: " + strings.Join(s.NotReady, "; ")
	}
	if s.Switch != nil {
		return withoutNexthop(s)
	}
	for _, v := range s.Vips {
		for _, slot := range v.Slots {
			checked := slot.Health == fairleadv1.Health_HEALTH_UP || slot.Health == fairleadv1.Health_HEALTH_UNSPECIFIED
			if slot.State == fairleadv1.SlotState_SLOT_STATE_ACTIVE && (!slot.TakesNew || !checked || !slot.NextHop.GetResolved()) {
				return fmt.Sprintf("%s of VIP %s (%s)", slot.Server, v.Name, slot.HealthDetail)
			}
		}
	}
	return ""
}

// Down takes a lab down: processes, pins, namespaces, folder, in this order.
// It goes by names alone and never stops at a step that fails, so it also
// removes what a killed `lab up` left half made.
func Down(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("lab name %q: must be %s", name, NameRule)
	}
	if err := needRoot(); err != nil {
		return err
	}
	dir := filepath.Join(Root, name)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) && len(netspace.List(namespacePrefix(name))) == 0 {
		return fmt.Errorf("there is no lab %q", name)
	}
	var errs []error
	namespaces := netspace.List(namespacePrefix(name))
	for _, ns := range namespaces {
		errs = append(errs, netspace.Kill(ns))
	}
	pins, _ := filepath.Glob(filepath.Join(bpffsRoot, name+"-*"))
	for _, p := range pins {
		if machine := strings.TrimPrefix(filepath.Base(p), name+"-"); isMachine(machine) {
			errs = append(errs, os.RemoveAll(p)) // unpinning a link detaches it
		}
	}
	for _, ns := range namespaces {
		errs = append(errs, netspace.Delete(ns))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take down lab %s: %w", name, err)
	}
	if err := unmount(dir); err != nil {
		return fmt.Errorf("take down lab %s: %w", name, err)
	}
	return os.RemoveAll(dir)
}

// isMachine tells a lab's balancer, switch or server from another daemon whose name
// begins like the lab's.
func isMachine(name string) bool {
	for _, prefix := range []string{"lb", "switch", "server"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			n, err := strconv.Atoi(rest)
			return err == nil && n > 0
		}
	}
	return false
}

// RemoveStale takes down the labs whose owner is gone (a `lab run` that was
// killed). Errors are left to the next attempt.
func RemoveStale() {
	for _, name := range List() {
		l, err := Load(name)
		if err == nil && l.Owner != 0 && netspace.ProcessStart(l.Owner) != l.OwnerStart {
			_ = Down(name)
		}
	}
}

// Machine checks a machine's name and returns its namespace.
func (l *Lab) Machine(name string) (string, error) {
	if !slices.Contains(l.Machines(), name) {
		return "", fmt.Errorf("lab %s has no machine %q; it has %s", l.Name, name, strings.Join(l.Machines(), ", "))
	}
	return l.namespace(name), nil
}
