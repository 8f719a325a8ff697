package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// edited is text with what change does to it.
func edited(t interface {
	Helper()
	Fatal(...any)
}, text string, change func(*Editor)) string {
	t.Helper()
	e, err := Edit([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	change(e)
	out, err := e.Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

const toEdit = `# Our edge.
secret_file: secret   # made by fairlead secret

balancers:
- {name: lb1, interfaces: [eth0]}   # rack 1

servers:
- {name: s1, address: 10.0.0.1}

# The new one:
- {name: s2, address: 10.0.0.2}

vips:
# Shop.
- name: web
  address: 192.0.2.10   # from the provider
  port: 80
  policy: wrr
  servers:
  - s1   # old
  # faster
  - {name: s2, weight: 3}

- {name: dns, address: 192.0.2.11, port: 53, scheme: jet,
   servers: [s1]}
# The end.
`

// TestEdit: what is written beside what is changed stays as it was written.
func TestEdit(t *testing.T) {
	replaced := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(toEdit) }
	for name, c := range map[string]struct {
		change func(*Editor)
		want   string
	}{
		"nothing":       {func(*Editor) {}, toEdit},
		"what it is":    {func(e *Editor) { e.SetMember("web", Member{Name: "s2", Weight: 3}) }, toEdit},
		"no such VIP":   {func(e *Editor) { e.SetMember("mail", Member{Name: "s2"}); e.RemoveMember("mail", "s1") }, toEdit},
		"drain":         {func(e *Editor) { e.SetMember("web", Member{Name: "s1", Drain: true}) }, replaced("- s1   # old", "- {name: s1, drain: true} # old", "10   # from", "10 # from")},
		"weight":        {func(e *Editor) { e.SetMember("web", Member{Name: "s2", Weight: 1}) }, replaced("- {name: s2, weight: 3}", "- s2", "10   # from", "10 # from", "s1   # old", "s1 # old")},
		"remove":        {func(e *Editor) { e.RemoveMember("web", "s1") }, replaced("  - s1   # old\n", "", "10   # from", "10 # from")},
		"drain in flow": {func(e *Editor) { e.SetMember("dns", Member{Name: "s1", Drain: true}) }, replaced(",\n   servers: [s1]", ", servers: [{name: s1, drain: true}]")},
		"add": {func(e *Editor) {
			if err := e.SetServer("s3", netip.MustParseAddr("10.0.0.3"), "none"); err != nil {
				t.Error(err)
			}
			e.SetMember("dns", Member{Name: "s3", Standby: true})
		}, replaced("address: 10.0.0.2}\n", "address: 10.0.0.2}\n- {name: s3, address: 10.0.0.3, api: none}\n", ",\n   servers: [s1]", ", servers: [s1, {name: s3, standby: true}]")},
		"agent": {func(e *Editor) {
			if err := e.SetServer("s1", netip.MustParseAddr("10.0.0.1"), "unix:/run/s1"); err != nil {
				t.Error(err)
			}
		}, replaced("address: 10.0.0.1}", "address: 10.0.0.1, api: 'unix:/run/s1'}")},
	} {
		if got := edited(t, toEdit, c.change); got != c.want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", name, got, c.want)
		}
	}
	e, err := Edit([]byte(toEdit))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.SetServer("s1", netip.MustParseAddr("10.0.0.9"), "none"); err == nil {
		t.Error("a server has two addresses")
	}
}

// drawText draws a text: lists in both styles, shared by anchors, merged, with comments.
func drawText(t *rapid.T) string {
	var b strings.Builder
	comment := func(indent string) {
		switch rapid.IntRange(0, 3).Draw(t, "between") {
		case 0:
			fmt.Fprintf(&b, "%s# comment %d\n", indent, b.Len())
		case 1:
			b.WriteString("\n")
		}
	}
	style := func(name string) bool { return rapid.Bool().Draw(t, name) }
	indent := rapid.SampledFrom([]string{"", "  ", "    "}).Draw(t, "indent")
	comment("")
	b.WriteString("secret_file: x   # kept\nbalancers: [{name: lb1, interfaces: [eth0]}]\nservers:\n")
	for i := range 4 {
		comment(indent)
		api := rapid.SampledFrom([]string{"", ", api: none", ", api: \"unix:/run/x\""}).Draw(t, "api")
		if style("flow") {
			fmt.Fprintf(&b, "%s- {name: s%d, address: 10.0.0.%d%s}\n", indent, i, i+1, api)
		} else {
			fmt.Fprintf(&b, "%s- name: s%d\n%s  address: 10.0.0.%d   # here\n", indent, i, indent, i+1)
		}
	}
	member := func(name string) string {
		return fmt.Sprintf(rapid.SampledFrom([]string{"%s", "{name: %s}", "{name: %s, weight: 3}", "{weight: 2, drain: true, name: %s}", "{name: %s, standby: true}", "\"%s\"", "{drain: false, name: '%s'}"}).Draw(t, "member"), name)
	}
	comment("")
	b.WriteString("vips:\n")
	pool, base := false, false
	for i, n := 0, rapid.IntRange(1, 4).Draw(t, "vips"); i < n; i++ {
		comment(indent)
		var members []string
		for s := range 4 {
			if style("is in") {
				members = append(members, member(fmt.Sprint("s", s)))
			}
		}
		anchor := ""
		if !pool && style("anchor") {
			anchor, pool = "&pool ", true
		} else if pool && style("alias") {
			members, anchor = nil, "*pool"
		}
		servers := anchor + "[" + strings.Join(members, ", ") + "]"
		if anchor == "*pool" {
			servers = anchor
		}
		if style("flow VIP") {
			fmt.Fprintf(&b, "%s- {name: v%d, address: 192.0.2.%d, port: 80, servers: %s}\n", indent, i, i+1, servers)
			continue
		}
		named := ""
		if i > 0 || style("named") {
			named = fmt.Sprintf("name: v%d\n%s  ", i, indent)
		}
		if !base && style("base") {
			base = true
			fmt.Fprintf(&b, "%s- &base\n%s  ", indent, indent)
		} else if base && style("merge") {
			// The base's servers, unless it has its own.
			fmt.Fprintf(&b, "%s- <<: *base\n%s  ", indent, indent)
			if anchor != "&pool " && style("base's pool") {
				fmt.Fprintf(&b, "name: v%d\n%s  address: 192.0.2.%d\n", i, indent, i+1)
				continue
			}
		} else {
			fmt.Fprintf(&b, "%s- ", indent)
		}
		fmt.Fprintf(&b, "%saddress: 192.0.2.%d # from there\n%s  port: 80\n", named, i+1, indent)
		if anchor == "*pool" || len(members) == 0 || style("flow pool") {
			fmt.Fprintf(&b, "%s  servers: %s\n", indent, servers)
			continue
		}
		fmt.Fprintf(&b, "%s  servers: %s\n", indent, strings.TrimSpace(anchor))
		for _, m := range members {
			fmt.Fprintf(&b, "%s    - %s\n", indent, m)
			comment(indent + "    ")
		}
	}
	comment("")
	b.WriteString("limits: {flows: 4096}\n")
	comment("")
	return b.String()
}

// TestEditSays: after any changes the text says what they say and all else as before,
// and no comment is lost that did not stand at what went.
func TestEditSays(t *testing.T) {
	spliced := 0
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		want, err := said([]byte(text))
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		e, err := Edit([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		removed := false
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			v := &want.VIPs[rapid.IntRange(0, len(want.VIPs)-1).Draw(t, "vip")]
			name := fmt.Sprint("s", rapid.IntRange(0, 5).Draw(t, "server"))
			at := slices.IndexFunc(v.Servers, func(m Member) bool { return m.Name == name })
			switch rapid.IntRange(0, 3).Draw(t, "change") {
			case 0:
				e.RemoveMember(v.Name, name)
				if at >= 0 {
					v.Servers, removed = slices.Delete(slices.Clone(v.Servers), at, at+1), true
				}
			case 1:
				address := netip.MustParseAddr("10.0.0." + string(name[1]+1))
				api := rapid.SampledFrom([]string{DefaultAPI(name), "none", "unix:/run/y"}).Draw(t, "new api")
				if err := e.SetServer(name, address, api); err != nil {
					t.Fatal(err)
				}
				if s, ok := want.Server(name); ok {
					s.API = api
				} else {
					want.Servers = append(want.Servers, Server{Name: name, Address: address, API: api, Metrics: new(DefaultMetrics)})
				}
			default:
				m := Member{Name: name, Weight: rapid.IntRange(1, 3).Draw(t, "weight")}
				switch rapid.IntRange(0, 2).Draw(t, "state") {
				case 1:
					m.Drain = true
				case 2:
					m.Standby = true
				}
				e.SetMember(v.Name, m)
				if v.Servers = slices.Clone(v.Servers); at >= 0 {
					v.Servers[at] = m
				} else {
					v.Servers = append(v.Servers, m)
				}
			}
		}
		out, err := e.Text()
		if err != nil {
			t.Fatal(err)
		}
		got, err := said(out)
		if err != nil {
			t.Fatalf("%s\nbecame\n%s\n%v", text, out, err)
		}
		for _, c := range []*Config{want, got} {
			for i := range c.VIPs {
				if len(c.VIPs[i].Servers) == 0 {
					c.VIPs[i].Servers = nil
				}
			}
		}
		if !same(got, want) {
			t.Fatalf("%s\nbecame\n%s\n%+v\nwant\n%+v", text, out, got.VIPs, want.VIPs)
		}
		after := comments(out)
		for _, c := range comments([]byte(text)) {
			if !removed && !slices.Contains(after, c) {
				t.Fatalf("%s\nbecame\n%s\nwithout %q", text, out, c)
			}
		}
		if strings.Contains(string(out), "# kept") && strings.Contains(string(out), "x   # kept") {
			spliced++
		}
	})
	if spliced < 10 {
		t.Errorf("only %d texts kept their style", spliced)
	}
}
