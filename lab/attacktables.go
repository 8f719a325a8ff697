package lab

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/netspace"
)

// serverTables is what servers know of the way to clients, each thing by its
// name: hardware addresses of neighbours, and the gateway to the client.
type serverTables map[string]string

// tablesOf reads those of all servers.
func (l *Lab) tablesOf(ctx context.Context) (serverTables, error) {
	all := serverTables{}
	for _, s := range l.servers() {
		err := netspace.In(l.namespace(s), func() error {
			neighbours, err := netlink.NeighList(0, unix.AF_UNSPEC)
			if err != nil {
				return err
			}
			for _, n := range neighbours {
				if len(n.HardwareAddr) == 6 && n.IP.IsGlobalUnicast() && n.State&(unix.NUD_NOARP|unix.NUD_FAILED) == 0 {
					all[fmt.Sprintf("%s: %v on link %d", s, n.IP, n.LinkIndex)] = n.HardwareAddr.String()
				}
			}
			for _, client := range []string{clientAddress4, clientAddress6} {
				routes, err := netlink.RouteGet(net.ParseIP(client))
				if err != nil || len(routes) == 0 {
					return fmt.Errorf("no route to the client: %w", err)
				}
				if !l.faild() { // there any gateway may be the one
					all[fmt.Sprintf("%s: way to %s", s, client)] = routes[0].Gw.String()
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read tables of %s: %w", s, err)
		}
	}
	return all, ctx.Err()
}

// changed tells what stands for something else now. What is new or gone is the
// kernel's own coming and going.
func changed(before, after serverTables) (found []string) {
	for _, what := range slices.Sorted(maps.Keys(before)) {
		if now, there := after[what]; there && now != before[what] {
			found = append(found, fmt.Sprintf("%s is %s, was %s", what, now, before[what]))
		}
	}
	return found
}

// forgetTables makes the servers find their neighbours and ways anew.
func (l *Lab) forgetTables() error {
	for _, s := range l.servers() {
		err := netspace.In(l.namespace(s), func() error {
			for _, name := range []string{"net.ipv4.route.flush", "net.ipv6.route.flush"} {
				if err := netspace.Sysctl(name, "1"); err != nil {
					return err
				}
			}
			neighbours, err := netlink.NeighList(0, unix.AF_UNSPEC)
			if err != nil {
				return err
			}
			for _, n := range neighbours {
				if n.State&(unix.NUD_PERMANENT|unix.NUD_NOARP) == 0 {
					_ = netlink.NeighDel(&n) // it may have gone by itself
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("forget tables of %s: %w", s, err)
		}
	}
	return nil
}
