package host

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/tables"
)

// joins are the endpoints of the agent's namespace. Where the machine cannot
// do it, connections stay as they are without MPTCP's joins: that is said, and
// fails nothing.
type joins struct {
	pm   *pathManager // nil: no MPTCP
	want map[netip.AddrPort]bool
	why  string // what is wrong, and the remedy
	told string // what was logged last
}

// Files of net.mptcp's sysctls.
const (
	mptcpEnabled = "/proc/sys/net/mptcp/enabled"
	// mptcpInitial: whether peers may join at the address and port of the first
	// subflow, where a balancer may send them to another server (RFC 8684,
	// §3.1, flag C).
	mptcpInitial = "/proc/sys/net/mptcp/allow_join_initial_addr_port"
)

// warnJoins6: ADD_ADDR of IPv6 with a port has 30 bytes, timestamps have 12,
// and TCP's options 40.
const warnJoins6 = "MPTCP: Linux cannot tell a client of an IPv6 address with a port beside TCP timestamps, so connections to IPv6 VIPs with timestamps " +
	"get no additional paths through balancers; serve MPTCP on IPv4 VIPs, or set net.ipv4.tcp_timestamps to 0 where no VIP of scheme cheetah is served"

// openJoins belongs to the calling thread's network namespace.
func openJoins() (j joins, err error) {
	j.pm, err = openPathManager()
	if errors.Is(err, errNoMPTCP) {
		err = nil
	}
	return j, err
}

func (j *joins) close() {
	if j.pm != nil {
		j.pm.close()
	}
}

// follow makes vips' join ports known to clients.
func (j *joins) follow(vips []*tables.ChainVIP) {
	j.want = map[netip.AddrPort]bool{}
	for _, v := range vips {
		for _, port := range v.Joins {
			j.want[netip.AddrPortFrom(v.Service.Addr(), port)] = true
		}
	}
}

// sync brings the kernel's endpoints in line, also after somebody else changed
// them.
func (j *joins) sync(ns netns.NsHandle, n notes) error {
	err := kernel.InNamespace(ns, func() error { return j.bring(n) })
	j.why = ""
	if err != nil {
		j.why = fmt.Sprintf("MPTCP: %v; connections go on without additional paths through balancers", err)
	}
	return err
}

func (j *joins) bring(n notes) error {
	if j.pm == nil {
		if len(j.want) > 0 {
			return fmt.Errorf("%w: use one that has it, or set mptcp: false for the VIP", errNoMPTCP)
		}
		return nil
	}
	if len(j.want) == 0 {
		return errors.Join(j.pm.sync(n, nil), j.pm.loosen(n))
	}
	errs := []error{j.pm.raise(n), j.pm.sync(n, j.want)}
	if b, err := os.ReadFile(mptcpEnabled); err == nil && len(b) > 0 && b[0] == '0' {
		errs = append(errs, errors.New("net.mptcp.enabled is 0: run sysctl -w net.mptcp.enabled=1"))
	}
	return errors.Join(errs...)
}

// sync makes the endpoints in want, and removes those of ours that are not in
// it. One of somebody else's at the same place is left alone.
func (p *pathManager) sync(n notes, want map[netip.AddrPort]bool) error {
	noted, err := n.of(noteEndpoint)
	if err != nil || len(noted) == 0 && len(want) == 0 {
		return err
	}
	list, err := p.endpoints()
	if err != nil {
		return err
	}
	var errs []error
	for at := range want {
		if slices.ContainsFunc(list, func(e endpoint) bool { return e.at == at && e.signal }) {
			continue
		}
		if err := n.write(endpointNote(at), 1); err != nil {
			return err
		}
		if err := p.add(at); err != nil {
			errs = append(errs, fmt.Errorf("endpoint %v: %w (a namespace has 8 at most; ip mptcp endpoint show lists them)", at, err))
		}
	}
	for _, k := range noted {
		at := netip.AddrPortFrom(netip.AddrFrom16(k.Addr).Unmap(), uint16(k.Index))
		if want[at] {
			continue
		}
		i := slices.IndexFunc(list, func(e endpoint) bool { return e.at == at && e.signal })
		if i >= 0 {
			if err := p.remove(list[i]); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
				errs = append(errs, fmt.Errorf("remove endpoint %v: %w", at, err))
				continue
			}
		}
		errs = append(errs, n.remove(k))
	}
	return errors.Join(errs...)
}

// raise lets connections have as many subflows as there can be, and keeps
// clients from joining where a balancer would send them astray.
func (p *pathManager) raise(n notes) error {
	accepted, subflows, err := p.limits()
	if err != nil {
		return err
	}
	if subflows < pmMaxSubflows {
		if err := n.write(note{Kind: noteLimit}, uint64(subflows)<<32|pmMaxSubflows); err != nil {
			return err
		}
		if err := p.setLimits(accepted, pmMaxSubflows); err != nil {
			return err
		}
	}
	b, err := os.ReadFile(mptcpInitial)
	if err != nil || len(b) == 0 || b[0] == '0' {
		return nil // kernels before 5.16 have no such sysctl
	}
	if err := n.write(note{Kind: noteInitial}, 1); err != nil {
		return err
	}
	if err := os.WriteFile(mptcpInitial, []byte("0"), 0); err != nil {
		return fmt.Errorf("net.mptcp.allow_join_initial_addr_port: %w; set it to 0", err)
	}
	return nil
}

// loosen undoes raise, unless somebody set something else meanwhile.
func (p *pathManager) loosen(n notes) error {
	var errs []error
	k := note{Kind: noteLimit}
	value, ok, err := n.read(k)
	if ok && err == nil {
		var accepted, subflows uint32
		accepted, subflows, err = p.limits()
		if err == nil && subflows == uint32(value) {
			err = p.setLimits(accepted, uint32(value>>32))
		}
		if err == nil {
			err = n.remove(k)
		}
	}
	errs = append(errs, err)
	k = note{Kind: noteInitial}
	if _, ok, err = n.read(k); ok && err == nil {
		if err = os.WriteFile(mptcpInitial, []byte("1"), 0); err == nil {
			err = n.remove(k)
		}
	}
	return errors.Join(append(errs, err)...)
}
