package swtch

import (
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/tables"
	"github.com/fairlead/fairlead/wire"
)

// Inspection is what a machine has that shall be a switch, or is one.
type Inspection struct {
	// Unfit says why nothing can be installed on the bridge; nil: it can.
	Unfit error
	// MTU of the bridge, and of its ports by name.
	MTU      int
	PortMTUs map[string]int
	// Ports are the servers' bridge ports by server; "" where none is known.
	Ports map[string]string
	// Cut are servers whose port is down.
	Cut []string
	// Alike are servers whose own MAC address reads as one of Faild's.
	Alike []string
	// Wrong are sysctls that are not as Settings says, with what they are;
	// Missing those that this kernel does not have.
	Wrong   []WrongSetting
	Missing []string
	// Forwards4 and Forwards6: the kernel forwards packets of the family.
	Forwards4, Forwards6 bool
}

// WrongSetting is a sysctl with another value than a switch needs.
type WrongSetting struct {
	Setting
	Is string
}

// Inspect looks at the caller's network namespace and changes nothing in it.
func Inspect(bridge string, ports map[string]string, servers []tables.SwitchServer, seed uint32) (*Inspection, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	i := &Inspection{PortMTUs: map[string]int{}, Ports: map[string]string{}, Forwards4: forwards(k, false), Forwards6: forwards(k, true)}
	for _, setting := range Settings(seed) {
		is, err := k.sysctl(setting.path())
		switch {
		case err != nil:
			i.Missing = append(i.Missing, setting.Name)
		case !setting.equal(is):
			i.Wrong = append(i.Wrong, WrongSetting{setting, strings.TrimSpace(is)})
		}
	}
	l, err := readLinks(k, bridge)
	if err != nil {
		return nil, err
	}
	i.Unfit = l.check(bridge)
	if l.bridge == 0 {
		return i, nil
	}
	i.MTU = int(l.mtu)
	for name, mtu := range l.portMTU {
		i.PortMTUs[name] = int(mtu)
	}
	f, err := read(k, l.bridge, nil, AnnounceTable)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		port := portOf(s, ports, l, f, 0)
		i.Ports[s.Name] = l.names[port]
		if l.down[port] {
			i.Cut = append(i.Cut, s.Name)
		}
		if mac, ok := f.neighbours[s.Address]; ok && LooksLikeFaild(mac) {
			i.Alike = append(i.Alike, s.Name)
		}
	}
	return i, nil
}

// LooksLikeFaild says that a network card's own address begins as Faild's
// addresses do, so that its frames could be taken for frames that name
// servers. Locally administered addresses are drawn at random, by virtual
// machines and veths too: 3 of 64 begin so.
func LooksLikeFaild(mac wire.MAC) bool {
	_, ok, _ := wire.DecodeFaild(mac)
	return ok
}

// Families says which families the addresses are of.
func Families(addresses []netip.Addr) (four, six bool) {
	for _, a := range addresses {
		four, six = four || a.Is4(), six || a.Is6()
	}
	return four, six
}
