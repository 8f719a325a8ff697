package topology

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// A fabric as LLDP (IEEE 802.1AB) sees it: each machine's daemon knows what
// its neighbours say of themselves. lldpd's own form of that is read, which
// `lldpcli -f json0 show neighbors` prints; its lists are lists however many
// neighbours there are, unlike those of -f json.

// LLDPOptions is what the neighbours do not say.
type LLDPOptions struct {
	// Hosts are the names of machines that are hosts whatever they say.
	Hosts []string
}

// lldpReport is what one machine knows.
type lldpReport struct {
	LLDP []struct {
		Interface []struct {
			Name    string        `json:"name"`
			Chassis []lldpChassis `json:"chassis"`
			Port    []struct {
				ID          []lldpValue `json:"id"`
				Description []lldpValue `json:"descr"`
			} `json:"port"`
		} `json:"interface"`
	} `json:"lldp"`
}

type lldpChassis struct {
	Name         []lldpValue `json:"name"`
	Addresses    []lldpValue `json:"mgmt-ip"`
	Capabilities []struct {
		Type    string `json:"type"`
		Enabled bool   `json:"enabled"`
	} `json:"capability"`
}

type lldpValue struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// lldpEnd is a machine and one of its devices.
type lldpEnd struct{ name, device string }

// lldpFabric is what all reports say together.
type lldpFabric struct {
	routers   map[string]bool // that say so themselves, to a neighbour
	addresses map[string][]netip.Addr
	links     map[[2]lldpEnd]bool
}

// FromLLDP makes a fabric of reports, by the names of their files: leaf1.json
// is what leaf1 knows. Machines that forward, by what they say, are routers; one
// that is alone in having several neighbours is a router, too. Routers' ports
// get numbers in the order of their devices' names. The key is drawn at random.
//
// Names are cut before the first dot. Errors name the file, or what the
// fabric's file could not hold.
func FromLLDP(reports map[string][]byte, o LLDPOptions) (*Fabric, error) {
	l := lldpFabric{routers: map[string]bool{}, addresses: map[string][]netip.Addr{}, links: map[[2]lldpEnd]bool{}}
	for _, file := range slices.Sorted(maps.Keys(reports)) {
		if err := l.read(file, reports[file]); err != nil {
			return nil, err
		}
	}
	if len(l.links) == 0 {
		return nil, fmt.Errorf("%s: no file names a neighbour; let LLDP run for a minute on all machines, then write `lldpcli -f json0 show neighbors` of each into a file called as the machine", strings.Join(slices.Sorted(maps.Keys(reports)), ", "))
	}
	f := l.fabric(o.Hosts)
	rand.Read(f.Selector.Key[:]) // never fails (crypto/rand)
	return f, f.number()
}

// machine is a name without its domain.
func machine(name string) string {
	short, _, _ := strings.Cut(name, ".")
	return short
}

// read takes one report.
func (l *lldpFabric) read(file string, data []byte) error {
	self := machine(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
	var r lldpReport
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("%s: not what `lldpcli -f json0 show neighbors` prints: %w", file, err)
	}
	for _, part := range r.LLDP {
		for _, i := range part.Interface {
			if len(i.Chassis) == 0 || len(i.Chassis[0].Name) == 0 || machine(i.Chassis[0].Name[0].Value) == "" {
				continue // a neighbour without a name is none of the fabric's
			}
			c := &i.Chassis[0]
			other := lldpEnd{name: machine(c.Name[0].Value)}
			if len(i.Port) > 0 {
				other.device = deviceOf(i.Port[0].ID, i.Port[0].Description)
			}
			l.describe(other.name, c)
			l.join(lldpEnd{self, i.Name}, other)
		}
	}
	return nil
}

// deviceOf is a port's interface name: its ID, if it is of that kind, else its
// description, which lldpd fills with the name.
func deviceOf(id, description []lldpValue) string {
	for _, v := range id {
		if v.Type == "ifname" || v.Type == "local" {
			return v.Value
		}
	}
	for _, v := range description {
		if !strings.ContainsFunc(v.Value, unicode.IsSpace) {
			return v.Value
		}
	}
	return ""
}

func (l *lldpFabric) describe(name string, c *lldpChassis) {
	for _, capability := range c.Capabilities {
		if capability.Enabled && (capability.Type == "Router" || capability.Type == "Bridge") {
			l.routers[name] = true
		}
	}
	for _, v := range c.Addresses {
		a, err := netip.ParseAddr(v.Value)
		if err == nil && a.IsGlobalUnicast() && !slices.Contains(l.addresses[name], a) {
			l.addresses[name] = append(l.addresses[name], a)
		}
	}
}

// join adds a link, once however many ends report it.
func (l *lldpFabric) join(a, b lldpEnd) {
	if cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.device, b.device)) > 0 {
		a, b = b, a
	}
	l.links[[2]lldpEnd{a, b}] = true
}

// fabric has all nodes and links, without numbers.
func (l *lldpFabric) fabric(hosts []string) *Fabric {
	neighbours := map[string]map[string]bool{}
	for link := range l.links {
		for side, end := range link {
			if neighbours[end.name] == nil {
				neighbours[end.name] = map[string]bool{}
			}
			neighbours[end.name][link[1-side].name] = true
		}
	}
	isHost := func(name string) bool {
		return slices.Contains(hosts, name) || !l.routers[name] && len(neighbours[name]) < 2
	}
	f := &Fabric{Selector: pathsel.Config{Permutation: pathsel.Feistel, IPv4: pathsel.Ports, IPv6: pathsel.Ports}}
	index := map[string]int{}
	for _, host := range []bool{false, true} {
		for _, name := range slices.Sorted(maps.Keys(neighbours)) {
			if isHost(name) == host {
				index[name] = len(f.Nodes)
				f.Nodes = append(f.Nodes, Node{Name: name, Host: host, Addresses: l.addresses[name], TTL: defaultTTL})
			}
		}
	}
	for link := range l.links {
		out := Link{Cost: 1}
		for side, end := range link {
			out.Ends[side] = End{Node: index[end.name], Port: -1, Device: end.device}
		}
		f.Links = append(f.Links, out)
	}
	slices.SortFunc(f.Links, func(a, b Link) int { return cmp.Or(byEnd(f, a, b, 0), byEnd(f, a, b, 1)) })
	return f
}

// byEnd orders links by one of their ends.
func byEnd(f *Fabric, a, b Link, side int) int {
	x, y := a.Ends[side], b.Ends[side]
	return cmp.Or(cmp.Compare(f.Nodes[x.Node].Name, f.Nodes[y.Node].Name), byNumbers(x.Device, y.Device))
}

// byNumbers orders names so that eth2 is before eth10.
func byNumbers(a, b string) int {
	for a != "" && b != "" {
		textA, numberA, restA := cutNumber(a)
		textB, numberB, restB := cutNumber(b)
		if c := cmp.Or(cmp.Compare(textA, textB), cmp.Compare(numberA, numberB)); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Compare(a, b)
}

// cutNumber splits eth10p3 into eth, 10 and p3.
func cutNumber(s string) (text string, number uint64, rest string) {
	i := strings.IndexFunc(s, unicode.IsDigit)
	if i < 0 {
		return s, 0, ""
	}
	end := i
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	number, _ = strconv.ParseUint(s[i:end], 10, 64)
	return s[:i], number, s[max(end, i+1):]
}

// number gives routers' ports numbers, from 0 in the order of their devices'
// names, and the selector the least radix that fits them.
func (f *Fabric) number() error {
	ends := make([][]*End, len(f.Nodes))
	for i := range f.Links {
		for side := range f.Links[i].Ends {
			e := &f.Links[i].Ends[side]
			if !f.Nodes[e.Node].Host {
				ends[e.Node] = append(ends[e.Node], e)
			}
		}
	}
	most := minRadix
	for node, list := range ends {
		if len(list) > maxRadix {
			return fmt.Errorf("router %s has %d links: a selector names at most %d ports; leave out the files of hosts, or name fewer routers", f.Nodes[node].Name, len(list), maxRadix)
		}
		slices.SortStableFunc(list, func(a, b *End) int { return byNumbers(a.Device, b.Device) })
		for i, e := range list {
			e.Port = i
		}
		most = max(most, len(list))
	}
	f.Selector.Radix = 1 << bits.Len(uint(most-1))
	return nil
}
