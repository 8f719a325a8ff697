package topology

import (
	"net/netip"
	"path/filepath"
	"reflect"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// file is fabric.yaml as it is written.
type file struct {
	Selector selectorEntry `yaml:"selector"`
	TLS      TLS           `yaml:"tls,omitempty"`
	Paths    serviceEntry  `yaml:"paths,omitempty"`
	Routers  []routerEntry `yaml:"routers"`
	Hosts    []hostEntry   `yaml:"hosts"`
	Links    []linkEntry   `yaml:"links"`
}

type selectorEntry struct {
	Key         string `yaml:"key,omitempty"`      // 32 hex digits
	KeyFile     string `yaml:"key_file,omitempty"` // what `fairlead secret` writes
	Permutation string `yaml:"permutation"`
	Radix       int    `yaml:"radix"`
	IPv4        string `yaml:"ipv4"`
	IPv6        string `yaml:"ipv6"`
}

type serviceEntry struct {
	API     string `yaml:"api,omitempty"`
	Metrics string `yaml:"metrics,omitempty"`
}

type routerEntry struct {
	Name       string       `yaml:"name"`
	Addresses  []netip.Addr `yaml:"addresses,omitempty"`
	Plain      bool         `yaml:"plain,omitempty"`
	API        string       `yaml:"api,omitempty"`
	Metrics    string       `yaml:"metrics,omitempty"`
	Interfaces []string     `yaml:"interfaces,omitempty"`
}

type hostEntry struct {
	Name      string       `yaml:"name"`
	Addresses []netip.Addr `yaml:"addresses,omitempty"`
	TTL       int          `yaml:"ttl,omitempty"`
}

// Each list of a link has two items, one for each of between.
type linkEntry struct {
	Between   []string  `yaml:"between"`
	Ports     []number  `yaml:"ports,omitempty"`
	Devices   []string  `yaml:"devices,omitempty"`
	Addresses []address `yaml:"addresses,omitempty"`
	Capacity  rate      `yaml:"capacity,omitempty"`
	Cost      int       `yaml:"cost,omitempty"`
	Down      bool      `yaml:"down,omitempty"`
}

// Read reads and checks the fabric.yaml at path. Its error names every problem
// on a line of its own, with file, line, field, value and remedy.
func Read(path string) (*Fabric, error) {
	data, _, err := yamlfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// ReadDraft is Read of a file that has still to be completed: nodes may be
// without links.
func ReadDraft(path string) (*Fabric, error) {
	data, _, err := yamlfile.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(path, data, true)
}

// Parse is Read of data; path names the file in errors and is the place from
// which relative files are found (key_file, tls).
func Parse(path string, data []byte) (*Fabric, error) { return parse(path, data, false) }

func parse(path string, data []byte, draft bool) (*Fabric, error) {
	doc := &yamlfile.Document{File: path, Example: example,
		Empty: "write selector, routers, hosts and links; docs/path.md has an example"}
	var written file
	if err := doc.Decode(data, &written); err != nil {
		return nil, err
	}
	c := &checker{Document: doc, file: &written, dir: filepath.Dir(path), draft: draft, fabric: &Fabric{}}
	c.check()
	if len(doc.Problems) > 0 {
		doc.Sort()
		return nil, doc.Problems
	}
	return c.fabric, nil
}

// example is a legal value of a field, for messages; "" where its type says
// enough.
func example(_ string, t reflect.Type) string {
	switch t {
	case reflect.TypeFor[number]():
		return "a number from 0 on, or none"
	case reflect.TypeFor[address]():
		return "an address such as 192.0.2.10 or 2001:db8::10, or none"
	case reflect.TypeFor[rate]():
		return "bit/s such as 10Gbit, 100Mbit or 64kbit"
	}
	return ""
}
