package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/daemon"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/lb"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/tables"
)

// runBalancer follows the store with real maps, in a network namespace of its own:
//
//	eth0 10.77.0.2 ── veth ── eth1 10.77.0.1, the router to all servers
func runBalancer(ctx context.Context, p Part, say func(Took)) (err error) {
	space := fmt.Sprintf("flbench%d", os.Getpid())
	if err := netspace.Create(space); err != nil {
		return err
	}
	defer netspace.Delete(space)
	pins := filepath.Join(kernel.Root, "fairlead", space)
	if err := kernel.Ensure(pins); err != nil {
		return err
	}
	var plane *lb.LB
	err = netspace.In(space, func() (err error) {
		if err := wire(); err != nil {
			return err
		}
		limits := config.DefaultLimits()
		limits.ServerLines, limits.TableEntries = 1<<17, 2*(tables.BucketEntries(p.Buckets)+tables.BucketWords)
		plane, err = lb.Open(lb.Options{Name: space, PinDir: pins, Interfaces: []string{"eth0"}, Limits: limits}, slog.New(slog.DiscardHandler))
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		_ = plane.Close()
		_ = lb.Unload(pins)
	}()
	if err := plane.SetClock(func() uint32 { return uint32(time.Now().UnixMilli()) }); err != nil {
		return err
	}
	state, err := daemon.OpenState(p.State, "lb1", daemon.UnsavedForce, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	var had *controller.Assignment
	w := &watcher{name: "lb1", at: p.Address, say: say}
	// As member.install does it: the disk comes behind the maps.
	w.install = func(a *controller.Assignment, t *Took) error {
		own := controller.Follow(had, a, time.Now())
		if _, err := plane.Apply(own, nil); err != nil {
			return err
		}
		took := plane.Took()
		t.Plan, t.Ways, t.Lines, t.Fill = ms(took.Plan), ms(took.Ways), ms(took.Lines), ms(took.Fill)
		t.inForce = took.Since
		had = own
		// Files are written one after the other: the second is asked for when the first is
		// on disk.
		state.KeepSoon("assignment.json", a.Encode)
		state.KeepSoon("own.json", func() []byte {
			say(Took{Version: a.Version, Disk: ms(time.Since(took.Since))})
			return nil
		})
		return nil
	}
	return w.run(ctx)
}

// wire makes the balancer's link. To be called in its namespace.
func wire() error {
	if err := netspace.LoopbackUp(); err != nil {
		return err
	}
	router := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1", PeerHardwareAddr: router}); err != nil {
		return err
	}
	for _, name := range []string{"eth0", "eth1"} {
		if err := netspace.SetLink(name, true); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := netspace.AddAddress(link, "10.77.0.2/24"); err != nil {
		return err
	}
	gateway := netip.MustParseAddr("10.77.0.1")
	if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: gateway.AsSlice(), HardwareAddr: router}); err != nil {
		return err
	}
	_, servers, _ := net.ParseCIDR("10.0.0.0/8")
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: servers, Gw: gateway.AsSlice()})
}
