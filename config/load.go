package config

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"reflect"
	"strconv"

	"github.com/fairlead/fairlead/config/yamlfile"
	"github.com/fairlead/fairlead/vip"
)

// NoAgent as a server's api: nothing of ours runs there.
const NoAgent = "none"

// Defaults of what a file leaves out.
const (
	DefaultMetrics = "127.0.0.1:7470"
	DefaultBridge  = "br0"
	DefaultPrefix  = "/fairlead/"
)

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 4 << 10

// maxPEM bounds each file of tls, in bytes.
const maxPEM = 1 << 20

// DefaultAPI is where the daemon called name listens if the file does not say.
func DefaultAPI(name string) string { return "unix:/run/fairlead/" + name + ".sock" }

// DefaultStore is where the store of the controller called name answers if the file
// does not say: for daemons of the same machine.
func DefaultStore(name string) string { return "unix:/run/fairlead/" + name + "-store.sock" }

// DefaultControl is where the controller called name answers operators if the file
// does not say.
func DefaultControl(name string) string { return "unix:/run/fairlead/" + name + "-api.sock" }

// Load reads the file at path, fills in defaults and secret_file, and
// validates. Its error is Problems: everything wrong, one line each.
func Load(path string) (*Config, error) {
	data, info, err := yamlfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(&Config{}, path, data, info)
}

// Look is Load for whoever only looks at daemons, away from their machines: the secret
// is neither read nor missed, and SecretBytes has none.
func Look(path string) (*Config, error) {
	data, _, err := yamlfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(&Config{looks: true}, path, data, nil)
}

// Looking is Look where there is no file: Desired has the rest.
func Looking(t TLS) *Config { return &Config{TLS: t, looks: true} }

// Parse is Load of data; path names the file in errors and is the place from
// which relative files are found.
func Parse(path string, data []byte) (*Config, error) { return parse(&Config{}, path, data, nil) }

// parse is Parse; info is the file's, if data came from one.
func parse(c *Config, path string, data []byte, info fs.FileInfo) (*Config, error) {
	d := document(path)
	if err := d.Decode(data, c); err != nil {
		return nil, err
	}
	c.origin = d
	c.TLS = c.TLS.In(filepath.Dir(path))
	c.fill()
	c.readSecret(filepath.Dir(path))
	if c.Secret != "" && info != nil {
		if wrong, remedy := yamlfile.Exposed(path, info); wrong != "" {
			c.problem("secret", "", "stands in this file: "+wrong, remedy+", or keep it in a file of its own, under secret_file")
		}
	}
	if c.Fabric != "" && !filepath.IsAbs(c.Fabric) {
		c.Fabric = filepath.Join(filepath.Dir(path), c.Fabric)
	}
	c.placePasswords(filepath.Dir(path))
	c.check()
	if len(d.Problems) > 0 {
		d.Sort()
		return nil, d.Problems
	}
	return c, nil
}

// document is for reading the file called name.
func document(name string) *yamlfile.Document {
	return &yamlfile.Document{File: name, Example: example, Most: most, Empty: "name balancers, servers and vips; README.md has an example"}
}

// Validate fills in defaults and checks a Config that was made by hand, or
// was changed after Load.
func (c *Config) Validate() error {
	c.origin = &yamlfile.Document{}
	c.fill()
	c.readSecret("")
	c.check()
	if p := c.origin.Problems; len(p) > 0 {
		return p
	}
	return nil
}

// SecretBytes is the deployment's secret, 32 bytes; nil if the file has none.
func (c *Config) SecretBytes() []byte { return c.secret }

// File is the path that the Config was loaded from, "" if from none.
func (c *Config) File() string {
	if c.origin == nil {
		return ""
	}
	return c.origin.File
}

// Balancer is the balancer called name.
func (c *Config) Balancer(name string) (*Balancer, bool) {
	for i := range c.Balancers {
		if c.Balancers[i].Name == name {
			return &c.Balancers[i], true
		}
	}
	return nil, false
}

// Server is the server called name.
func (c *Config) Server(name string) (*Server, bool) {
	for i := range c.Servers {
		if c.Servers[i].Name == name {
			return &c.Servers[i], true
		}
	}
	return nil, false
}

// Switch is the switch called name.
func (c *Config) Switch(name string) (*Switch, bool) {
	for i := range c.Switches {
		if c.Switches[i].Name == name {
			return &c.Switches[i], true
		}
	}
	return nil, false
}

// String is how a port is written: its number or "all".
func (p Port) String() string {
	if p == 0 {
		return "all"
	}
	return strconv.Itoa(int(p))
}

// fill puts defaults where the file is silent.
func (c *Config) fill() {
	if _, written := c.origin.At["metrics"]; c.Metrics == "" && !written {
		c.Metrics = DefaultMetrics
	}
	for i := range c.Balancers {
		b := &c.Balancers[i]
		b.API = cmp.Or(b.API, DefaultAPI(b.Name))
		if b.Metrics == nil {
			b.Metrics = new(c.Metrics)
		}
		b.fillL2()
	}
	for i := range c.Servers {
		s := &c.Servers[i]
		s.API = cmp.Or(s.API, DefaultAPI(s.Name))
		if s.Metrics == nil {
			s.Metrics = new(c.Metrics)
		}
	}
	for i := range c.Switches {
		c.Switches[i].fill(c, fmt.Sprintf("switches[%d]", i))
	}
	c.imply()
	for i := range c.Controllers {
		s := &c.Controllers[i]
		s.API = cmp.Or(s.API, DefaultControl(s.Name))
		if len(c.Store.Etcd) == 0 {
			s.Store = cmp.Or(s.Store, DefaultStore(s.Name))
		}
		if s.Metrics == nil {
			s.Metrics = new("") // beside a balancer or server, which has the file's
		}
	}
	c.Store.Prefix = cmp.Or(c.Store.Prefix, DefaultPrefix)
	c.BGP.fill(c.origin.At)
	for i := range c.VIPs {
		c.VIPs[i].fill(c.origin.At, fmt.Sprintf("vips[%d]", i))
	}
	for _, l := range c.Limits.all() {
		if c.origin.At["limits."+l.key] == nil {
			*l.value = cmp.Or(*l.value, l.usual)
		}
	}
}

func (v *VIP) fill(at positions, path string) {
	v.Protocol = cmp.Or(v.Protocol, vip.TCP)
	if v.Name == "" && v.Address.IsValid() {
		host := v.Address.String()
		if v.Address.Is6() {
			host = "[" + host + "]"
		}
		v.Name = host + ":" + v.Port.String() + "/" + v.Protocol
	}
	v.Scheme = cmp.Or(v.Scheme, vip.DefaultScheme)
	if v.Policy == "" {
		v.Policy = v.Scheme.Policies(v.Protocol)[0]
	}
	v.fillHash(at, path)
	v.fillChain(at, path)
	v.Affinity = cmp.Or(v.Affinity, vip.Connection)
	v.Forwarding = cmp.Or(v.Forwarding, vip.DefaultForwarding)
	v.Steer = cmp.Or(v.Steer, vip.SteerOff)
	v.Fragments = cmp.Or(v.Fragments, vip.Drop)
	if v.Carrier == v.Scheme.Row().Carrier(v.Protocol) {
		v.Carrier = "" // as if nobody had said it: it is the same VIP
	}
	if v.Handshake == vip.HandshakeStack {
		v.Handshake = "" // the same
	}
	if v.Announce == vip.AnnounceHealthy {
		v.Announce = "" // the same
	}
	if len(v.Communities) == 0 {
		v.Communities = nil
	}
	if at[path+".seat_bits"] == nil {
		v.SeatBits = cmp.Or(v.SeatBits, v.DefaultSeatBits())
	}
	if at[path+".cookie_bits"] == nil {
		v.CookieBits = cmp.Or(v.CookieBits, v.DefaultBits())
	}
	if t := v.Tiers; t != nil {
		if at[path+".tiers.bits"] == nil {
			t.Bits = cmp.Or(t.Bits, vip.DefaultTierBits)
		}
		t.Forwarding = cmp.Or(t.Forwarding, v.Forwarding)
	}
	if r := v.Rates; r != nil && r.Source != nil {
		if at[path+".rates.source.prefix_v4"] == nil {
			r.Source.PrefixV4 = cmp.Or(r.Source.PrefixV4, vip.DefaultPrefixV4)
		}
		if at[path+".rates.source.prefix_v6"] == nil {
			r.Source.PrefixV6 = cmp.Or(r.Source.PrefixV6, vip.DefaultPrefixV6)
		}
	}
	if v.ICMPEcho == nil {
		v.ICMPEcho = new(true)
	}
	if v.MSSClamp == nil {
		v.MSSClamp = new(true)
	}
	s := &v.Settings
	s.Port, s.ICMPEcho, s.MSSClamp, s.Horizon, s.Share = uint16(v.Port), *v.ICMPEcho, *v.MSSClamp, *v.Horizon, *v.Share
	for j := range v.Servers {
		if m := &v.Servers[j]; at[fmt.Sprintf("%s.servers[%d].weight", path, j)] == nil {
			m.Weight = cmp.Or(m.Weight, 1)
		}
	}
	if h := v.Health; h != nil {
		h.Type = cmp.Or(h.Type, "tcp")
		h.Port = cmp.Or(h.Port, uint16(v.Port))
		if h.Type == "http" {
			h.Path = cmp.Or(h.Path, "/")
			h.Host = cmp.Or(h.Host, hostHeader(v.Address))
		}
		h.Interval = cmp.Or(h.Interval, vip.DefaultInterval)
		h.Timeout = cmp.Or(h.Timeout, min(vip.DefaultTimeout, h.Interval))
		h.Rise = cmp.Or(h.Rise, vip.DefaultRise)
		h.Fall = cmp.Or(h.Fall, vip.DefaultFall)
	}
}

func hostHeader(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return ""
	case a.Is6():
		return "[" + a.String() + "]"
	}
	return a.String()
}

// readSecret decodes Secret or the content of SecretFile, looked up from dir.
func (c *Config) readSecret(dir string) {
	if c.looks {
		return
	}
	const remedy = "make one with `fairlead secret`"
	text, field := c.Secret, "secret"
	switch {
	case c.Secret != "" && c.SecretFile != "":
		c.problem("secret_file", c.SecretFile, "both secret and secret_file are given", "keep one of them")
		return
	case c.SecretFile != "":
		field = "secret_file"
		path := c.SecretFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		data, info, err := yamlfile.ReadBounded(path, maxSecret)
		if err != nil {
			wrong, remedy := yamlfile.Unread(err, "make one with `fairlead secret "+path+"`")
			c.problem(field, c.SecretFile, wrong, remedy)
			return
		}
		if wrong, remedy := yamlfile.Exposed(path, info); wrong != "" {
			c.problem(field, c.SecretFile, wrong, remedy)
		}
		text = string(bytes.TrimSpace(data))
	case c.Secret == "":
		return
	}
	secret, err := hex.DecodeString(text)
	switch {
	case err != nil:
		// The secret itself stays out of messages.
		c.problem(field, "", "not hexadecimal", remedy)
	case len(secret) != 32:
		c.problem(field, "", fmt.Sprintf("%d bytes, must be 32", len(secret)), remedy)
	case len(bytes.Trim(secret, string(secret[0]))) == 0:
		c.problem(field, "", "one byte repeated is no secret", remedy)
	default:
		c.secret = secret
	}
}

// example is a legal value of a field of the file, for messages; "" where its
// type says enough.
func example(field string, t reflect.Type) string {
	switch field {
	case "buckets":
		return fmt.Sprintf("1 to %d (scheme faild: to %d)", vip.Beamer.Row().MaxBuckets, vip.Faild.Row().MaxBuckets)
	case "chain_time":
		return "a duration such as 10s or 4m"
	}
	if t == reflect.TypeFor[Port]() {
		return "1 to 65535, or all"
	}
	return ""
}
