package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab/netspace"
)

// A lab whose client is on the balancers' Ethernet and asks there for the VIPs'
// addresses, and what scenarios do to such labs.
//
//	client    10.77.1.2   fd77:1::2
const nearClient4, nearClient6 = "10.77.1.2", "fd77:1::2"

// buildNearClient puts the client on the router's Ethernet.
func (l *Lab) buildNearClient() error {
	if err := l.attach(cable{hub: "router", port: "client", machine: "client", device: uplink, mtu: l.MTU}); err != nil {
		return err
	}
	return l.configure("client", func() error {
		if err := l.buildClient(); err != nil {
			return err
		}
		device, err := netlink.LinkByName(uplink)
		if err != nil {
			return err
		}
		for _, prefix := range []string{vipPrefix4, vipPrefix6} {
			_, to, err := net.ParseCIDR(prefix)
			if err != nil {
				return err
			}
			if err := netlink.RouteReplace(&netlink.Route{Dst: to, LinkIndex: device.Attrs().Index, MTU: clientMTU, Scope: netlink.SCOPE_LINK}); err != nil {
				return fmt.Errorf("route %s over %s: %w", prefix, uplink, err)
			}
		}
		return nil
	}, card{uplink, nearClient4, nearClient6, gateway4, gateway6})
}

// CutPower ends a machine as a loss of power does, and what it had in its memory.
func (l *Lab) CutPower(machine string) error {
	if err := l.crash(machine); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(bpffsRoot, l.daemonName(machine)))
}

// Boot starts a machine that has lost its power, and waits until it is ready.
func (l *Lab) Boot(ctx context.Context, machine string) error {
	if err := l.setLink(machine, true); err != nil {
		return err
	}
	return l.StartDaemon(ctx, machine)
}

// StopDaemon tells a machine's daemon to stop, and waits until it has.
func (l *Lab) StopDaemon(ctx context.Context, machine string) error {
	text, err := os.ReadFile(l.path(machine + ".pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", machine, err)
	}
	if !netspace.WaitFor(readyWait, func() bool { return netspace.IsZombie(pid) || ctx.Err() != nil }) {
		return errors.New(machine + " does not end")
	}
	return ctx.Err()
}

// StopStore kills all controllers.
func (l *Lab) StopStore() (err error) {
	for _, c := range l.controllers() {
		err = errors.Join(err, l.kill(c.machine, c.name))
	}
	return err
}

// StartStore starts them again, without waiting.
func (l *Lab) StartStore() error { return l.startControllers() }
