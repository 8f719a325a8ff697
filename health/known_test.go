package health

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type answers func(Target) error

func (a answers) Probe(_ context.Context, t Target) error { return a(t) }

// A target begins as what was known of it, and takes as many checks to be taken
// for something else as at any other time. Another server under its number begins
// as unknown.
func TestRecall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		well := map[string]bool{"s0": true, "s1": true, "s2": false}
		var mu sync.Mutex // targets change at the same time
		var changes []string
		c := NewChecker(answers(func(t Target) error {
			if well[t.Server] {
				return nil
			}
			return errors.New("refused")
		}), func(t Target, r Report) {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, t.Server+" "+r.State.String())
		})
		defer c.Close()
		target := func(slot uint16, server string) Target {
			return Target{VIP: 1, Slot: slot, Server: server, Address: netip.MustParseAddrPort("192.0.2.1:80"),
				Interval: time.Second, Timeout: time.Second, Rise: 3, Fall: 3}
		}
		at := time.Now().Add(-time.Hour)
		known := func(slot uint16, server string, up bool) Known {
			return Known{VIP: 1, Slot: slot, Server: server, Address: target(slot, server).Address, Up: up, Since: at, Detail: "as it was"}
		}
		c.Recall([]Known{known(0, "s0", true), known(1, "s1", false), known(2, "s2", true), known(3, "gone", false)})
		if c.Down(1, 0) || !c.Down(1, 1) || c.Down(1, 2) {
			t.Error("before the first targets")
		}
		c.SetTargets([]Target{target(0, "s0"), target(1, "s1"), target(2, "s2"), target(3, "s3")})
		for slot, want := range []State{Up, Down, Up, Unknown} {
			if r, _ := c.Report(1, uint16(slot)); r.State != want || r.Remembered != (want != Unknown) || want != Unknown && !r.Since.Equal(at) {
				t.Errorf("slot %d begins as %+v", slot, r)
			}
		}
		time.Sleep(1300 * time.Millisecond) // one or two checks each, of three
		synctest.Wait()
		if r, _ := c.Report(1, 1); !c.Down(1, 1) || !r.Remembered || c.Down(1, 2) {
			t.Errorf("after one check: %+v", r)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if c.Down(1, 1) || !c.Down(1, 2) {
			mu.Lock()
			t.Errorf("after all checks: %v", changes)
			mu.Unlock()
		}
		if r, _ := c.Report(1, 0); r.State != Up || r.Remembered || !r.Since.Equal(at) {
			t.Errorf("what checks confirm is no news: %+v", r)
		}
		if all := c.Known(); len(all) != 4 || all[0] != (Known{1, 0, "s0", target(0, "").Address, true, at.UTC(), ""}) || all[1].Slot != 1 {
			t.Errorf("known: %v", all)
		}
		// The number is given to another server later.
		c.SetTargets([]Target{target(0, "other")})
		if r, _ := c.Report(1, 0); r.State != Unknown {
			t.Errorf("another server: %+v", r)
		}
	})
}
