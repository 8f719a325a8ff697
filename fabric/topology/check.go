package topology

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/fabric/pathsel"
)

// Bounds of a file's numbers.
const (
	defaultTTL = 64
	maxTTL     = 255
	maxCost    = 1 << 16
)

// DefaultServiceAPI is where the path service answers if the file is silent.
const DefaultServiceAPI = "unix:/run/fairlead/paths.sock"

// checker turns a file into a fabric, and records all that is wrong.
type checker struct {
	*yamlfile.Document
	file   *file
	dir    string
	draft  bool // nodes may have no links
	fabric *Fabric
	names  map[string]int        // node by name
	owner  map[netip.Addr]string // who has an address: a name
	ports  map[portKey]int       // link by a router's port
	linked map[int]bool          // nodes with a link
}

type portKey struct{ node, port int }

// check looks at everything; no problem stops it.
func (c *checker) check() {
	c.names, c.owner = map[string]int{}, map[netip.Addr]string{}
	c.ports, c.linked = map[portKey]int{}, map[int]bool{}
	c.checkSelector()
	c.checkDaemons()
	for i := range c.file.Routers {
		c.checkRouter(fmt.Sprintf("routers[%d]", i), &c.file.Routers[i])
	}
	for i := range c.file.Hosts {
		c.checkHost(fmt.Sprintf("hosts[%d]", i), &c.file.Hosts[i])
	}
	for i := range c.file.Links {
		c.checkLink(i, &c.file.Links[i])
	}
	if c.draft || c.Bad["links"] {
		return
	}
	for i := range c.fabric.Nodes {
		path, n := c.nodePath(i), &c.fabric.Nodes[i]
		// Links of a name that is there twice are counted for the first.
		if first, named := c.names[n.Name]; !c.linked[i] && (!named || first == i) {
			c.Problem(path+".name", n.Name, "has no link, so that no path leads there", "add one under links: {between: ["+n.Name+", …]}, or remove it")
		}
	}
}

// nodePath is where node i stands in the file.
func (c *checker) nodePath(i int) string {
	if i < len(c.file.Routers) {
		return fmt.Sprintf("routers[%d]", i)
	}
	return fmt.Sprintf("hosts[%d]", i-len(c.file.Routers))
}

// checkDaemons looks at what is about daemons instead of packets.
func (c *checker) checkDaemons() {
	t := c.file.TLS
	c.fabric.TLS, c.fabric.writtenTLS = t.In(c.dir), t
	if t != (TLS{}) {
		for _, f := range []struct{ key, value string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
			if f.value == "" {
				c.Problem("tls."+f.key, "", "missing", "daemons know each other by certificates: name PEM files for ca, cert and key")
			}
		}
	}
	c.fabric.Service = Endpoint{API: cmp.Or(c.file.Paths.API, DefaultServiceAPI), Metrics: c.file.Paths.Metrics}
	c.checkEndpoint("paths", c.fabric.Service, true)
}

// checkEndpoint looks at where a daemon answers; plain says whether HTTP on
// the loopback will do.
func (c *checker) checkEndpoint(path string, e Endpoint, plain bool) {
	if err := CheckAPI(e.API, plain); err != nil {
		c.Problem(path+".api", e.API, err.Error(), "write unix:/path, or https://address:port")
	}
	if strings.HasPrefix(e.API, "https://") && c.file.TLS == (TLS{}) {
		c.Problem(path+".api", e.API, "needs certificates, and the file names none", "write tls: {ca, cert, key}; `fairlead certs` makes them")
	}
	if e.Metrics == "" {
		return
	}
	if _, err := netip.ParseAddrPort(e.Metrics); err != nil {
		c.Problem(path+".metrics", e.Metrics, "not an address with a port", "write one such as 127.0.0.1:7471")
	}
}

// CheckAPI says what is wrong with an endpoint; plain allows http on the loopback.
func CheckAPI(api string, plain bool) error {
	if path, ok := strings.CutPrefix(api, "unix:"); ok {
		if !strings.HasPrefix(path, "/") || len(path) > 107 {
			return fmt.Errorf("not a path from / on of at most 107 bytes")
		}
		return nil
	}
	scheme, address, _ := strings.Cut(api, "://")
	ap, err := netip.ParseAddrPort(strings.TrimSuffix(address, "/"))
	switch {
	case scheme != "https" && scheme != "http", err != nil, ap.Port() == 0:
		return fmt.Errorf("not an endpoint")
	case scheme == "http" && !plain:
		return fmt.Errorf("plain http is for the path service")
	case scheme == "http" && !ap.Addr().IsLoopback():
		return fmt.Errorf("plain http is for loopback addresses, since anybody who reaches it may place flows")
	}
	return nil
}

// nodeName is also a file's name (socket, pins, state) and a metric's label.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// node adds what routers and hosts have in common.
func (c *checker) node(path string, n Node) {
	i := len(c.fabric.Nodes)
	c.fabric.Nodes = append(c.fabric.Nodes, n)
	if other, dup := c.names[n.Name]; dup {
		c.Problem(path+".name", n.Name, "already the name of "+c.nodePath(other), "give each router and host a name of its own")
	}
	_, notAddress := netip.ParseAddr(n.Name)
	switch {
	case n.Name == "":
		c.Problem(path+".name", "", "missing", "give each router and host a name of its own")
	case !nodeName.MatchString(n.Name):
		c.Problem(path+".name", n.Name, "not a name", "use letters, digits, dots, dashes and underscores, 63 at most")
	case notAddress == nil:
		c.Problem(path+".name", n.Name, "an address is no name", "write it under addresses, and another name")
	default:
		if _, dup := c.names[n.Name]; !dup {
			c.names[n.Name] = i
		}
	}
	for j, a := range n.Addresses {
		c.checkAddress(fmt.Sprintf("%s.addresses[%d]", path, j), a, n.Name)
	}
}

// checkAddress records who has the address; one node may name it twice: as
// its own and on a link's end.
func (c *checker) checkAddress(path string, a netip.Addr, name string) {
	other, taken := c.owner[a]
	switch {
	case !a.IsValid(): // did not decode
	case a.IsUnspecified(), a.IsMulticast(), a.IsLoopback(), a.Is4In6(), a.Zone() != "":
		c.Problem(path, a.String(), "not an address that packets of the fabric can have", "write a unicast address without a zone")
	case taken && other != name:
		c.Problem(path, a.String(), "already an address of "+other, "give each address to one router or host")
	default:
		c.owner[a] = name
	}
}

// defaultRouterAPI is where a router's daemon answers if the file is silent.
func defaultRouterAPI(name string) string { return "unix:/run/fairlead/" + name + ".sock" }

func (c *checker) checkRouter(path string, r *routerEntry) {
	e := Endpoint{API: cmp.Or(r.API, defaultRouterAPI(r.Name)), Metrics: r.Metrics}
	if nodeName.MatchString(r.Name) {
		c.checkEndpoint(path, e, false)
	}
	for j, name := range r.Interfaces {
		c.checkDevice(fmt.Sprintf("%s.interfaces[%d]", path, j), name)
	}
	c.node(path, Node{Name: r.Name, Plain: r.Plain, Addresses: r.Addresses, TTL: defaultTTL, Endpoint: e, Interfaces: r.Interfaces})
}

func (c *checker) checkHost(path string, h *hostEntry) {
	ttl := h.TTL
	if c.At[path+".ttl"] == nil {
		ttl = defaultTTL
	} else if ttl < 1 || ttl > maxTTL {
		c.Problem(path+".ttl", fmt.Sprint(ttl), "out of range", "write what the host's packets begin with, 1 to 255")
	}
	c.node(path, Node{Name: h.Name, Host: true, Addresses: h.Addresses, TTL: uint8(ttl)})
}

// checkDevice looks at an interface's name as the kernel does.
func (c *checker) checkDevice(path, name string) {
	if len(name) > 15 || name == "." || name == ".." || strings.ContainsAny(name, "/ \t\r\n") {
		c.Problem(path, name, "not an interface's name", "write 1 to 15 characters without / and spaces, as ip link shows it")
	}
}

// checkOneOf looks at a choice.
func (c *checker) checkOneOf(path, value string, legal ...string) {
	if slices.Contains(legal, value) {
		return
	}
	remedy := "write " + strings.Join(legal, ", ")
	if near := yamlfile.Nearest(value, legal); near != "" {
		remedy = "write " + near + " (known: " + strings.Join(legal, ", ") + ")"
	}
	c.Problem(path, value, "unknown", remedy)
}

// checkSelector looks at what routers and hosts have to agree on.
func (c *checker) checkSelector() {
	s := &c.file.Selector
	before := len(c.Problems)
	s.Permutation = cmp.Or(s.Permutation, string(pathsel.Feistel))
	s.IPv4, s.IPv6 = cmp.Or(s.IPv4, string(pathsel.Ports)), cmp.Or(s.IPv6, string(pathsel.Ports))
	if c.At["selector.radix"] == nil {
		s.Radix = 16
	}
	c.checkOneOf("selector.permutation", s.Permutation, string(pathsel.Feistel), string(pathsel.RC5), string(pathsel.Skip32))
	c.checkOneOf("selector.ipv4", s.IPv4, string(pathsel.Ports), string(pathsel.SourcePort))
	c.checkOneOf("selector.ipv6", s.IPv6, string(pathsel.Ports), string(pathsel.SourcePort), string(pathsel.FlowLabel))
	if s.Radix < minRadix || s.Radix > maxRadix {
		c.Problem("selector.radix", fmt.Sprint(s.Radix), "out of range", fmt.Sprintf("write more than the highest port's number, %d to %d", minRadix, maxRadix))
	}
	c.fabric.KeyFile = s.KeyFile
	c.fabric.Selector = pathsel.Config{Permutation: pathsel.Permutation(s.Permutation), Radix: s.Radix,
		IPv4: pathsel.Field(s.IPv4), IPv6: pathsel.Field(s.IPv6)}
	c.readKey()
	if len(c.Problems) > before {
		return
	}
	// What does not fit together.
	if _, err := pathsel.New(c.fabric.Selector); err != nil {
		c.Problem("selector", "", err.Error(), "")
	}
}
