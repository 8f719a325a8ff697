package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// Editor changes the text of a file as verbs do: members of VIPs, and the entries of
// servers that come by name and address. Comments, order and everything that it is not
// told to change stay. It does no I/O, and whether what comes out is a good file is for
// Parse to say: text is one that Parse took.
type Editor struct {
	doc  yaml.Node
	file *Config // what the text says now, for names and places
	text []byte
	// touched are the items of the root's lists that were changed, by list.
	touched map[string]map[int]bool
}

// Edit begins with a text that Parse took.
func Edit(text []byte) (*Editor, error) {
	e := &Editor{text: text, touched: map[string]map[int]bool{}}
	if err := e.read(text); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Editor) read(text []byte) error {
	doc, err := tree(text)
	if err != nil {
		return err
	}
	e.doc = *doc
	e.file, err = said(text)
	return err
}

// tree is the document of a text.
func tree(text []byte) (*yaml.Node, error) {
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		doc := &yaml.Node{}
		err := decoder.Decode(doc)
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the configuration is empty")
		}
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		if doc.Content[0].Kind == yaml.MappingNode {
			return doc, nil
		}
	}
}

// said is what a text says, with defaults and unchecked.
func said(text []byte) (*Config, error) {
	c := &Config{}
	d := &yamlfile.Document{}
	if err := d.Decode(text, c); err != nil {
		return nil, err
	}
	if len(d.Problems) > 0 {
		return nil, d.Problems
	}
	c.origin = d
	c.fill()
	return c, nil
}

func (e *Editor) vip(name string) int {
	return slices.IndexFunc(e.file.VIPs, func(v VIP) bool { return v.Name == name })
}

// SetMember makes m a member of the VIP, or the member of its name what m says. A
// VIP that the text lacks has none.
func (e *Editor) SetMember(vip string, m Member) {
	at := e.vip(vip)
	if at < 0 {
		return
	}
	members := &e.file.VIPs[at].Servers
	m.Weight = max(m.Weight, 1)
	n := slices.IndexFunc(*members, func(o Member) bool { return o.Name == m.Name })
	if n >= 0 && (*members)[n] == m {
		return
	}
	list := e.pool(at)
	if n < 0 {
		n = len(*members)
		*members = append(*members, Member{Name: m.Name, Weight: 1})
		list.Content = append(list.Content, text(m.Name))
	}
	item := list.Content[n]
	if item.Kind == yaml.ScalarNode && m != (Member{Name: m.Name, Weight: 1}) {
		name := *item
		name.HeadComment, name.LineComment, name.FootComment = "", "", ""
		*item = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle, Content: []*yaml.Node{text("name"), &name},
			HeadComment: item.HeadComment, LineComment: item.LineComment, FootComment: item.FootComment}
	}
	was := &(*members)[n]
	if was.Weight != m.Weight {
		set(item, "weight", number(m.Weight), m.Weight == 1)
	}
	if was.Drain != m.Drain {
		set(item, "drain", truth(m.Drain), !m.Drain)
	}
	if was.Standby != m.Standby {
		set(item, "standby", truth(m.Standby), !m.Standby)
	}
	if item.Kind == yaml.MappingNode && len(item.Content) == 2 && item.Style == yaml.FlowStyle && item.Content[1].Kind == yaml.ScalarNode {
		name := *item.Content[1] // which is all that it says
		name.HeadComment, name.LineComment, name.FootComment = item.HeadComment, item.LineComment, item.FootComment
		*item = name
	}
	*was = m
}

// RemoveMember takes a server out of the VIP. Its entry among the servers stays, as
// the machine is there.
func (e *Editor) RemoveMember(vip, server string) {
	at := e.vip(vip)
	if at < 0 {
		return
	}
	members := &e.file.VIPs[at].Servers
	n := slices.IndexFunc(*members, func(o Member) bool { return o.Name == server })
	if n < 0 {
		return
	}
	list := e.pool(at)
	list.Content = slices.Delete(list.Content, n, n+1)
	*members = slices.Delete(*members, n, n+1)
}

// SetServer adds the entry of a server that the text lacks, or has its agent answer
// at api. An error: it has another address there.
func (e *Editor) SetServer(name string, address netip.Addr, api string) error {
	n := slices.IndexFunc(e.file.Servers, func(s Server) bool { return s.Name == name })
	if n >= 0 {
		s := &e.file.Servers[n]
		if s.Address != address {
			return fmt.Errorf("server %s: the configuration has it at %s, not %s: one server has one address", name, s.Address, address)
		}
		if s.API != api {
			if anchored(e.item("servers", n).Content...) {
				e.expand()
			}
			set(e.item("servers", n), "api", text(api), api == DefaultAPI(name))
			s.API = api
		}
		return nil
	}
	n = len(e.file.Servers)
	entry := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle,
		Content: []*yaml.Node{text("name"), text(name), text("address"), text(address.String())}}
	if api != DefaultAPI(name) {
		entry.Content = append(entry.Content, text("api"), text(api))
	}
	list := e.list("servers")
	list.Content = append(list.Content, entry)
	e.touch("servers", n)
	e.file.Servers = append(e.file.Servers, Server{Name: name, Address: address, API: api})
	return nil
}

// SetDrain has a balancer of tier two drain, or not.
func (e *Editor) SetDrain(balancer string, drain bool) {
	n := slices.IndexFunc(e.file.Balancers, func(b Balancer) bool { return b.Name == balancer })
	if n < 0 || e.file.Balancers[n].Drain == drain {
		return
	}
	if anchored(e.item("balancers", n).Content...) {
		e.expand()
	}
	set(e.item("balancers", n), "drain", truth(drain), !drain)
	e.file.Balancers[n].Drain = drain
}

// Text is the text as it is now: what was given, where nothing was changed; else with
// what was changed written anew, and if that cannot be put into its place, all of it.
func (e *Editor) Text() ([]byte, error) {
	if len(e.touched) == 0 {
		return e.text, nil
	}
	whole, err := encode(&e.doc, e.compact())
	if err != nil {
		return nil, err
	}
	out := whole
	if spliced := e.splice(); spliced != nil {
		a, errA := said(spliced)
		b, errB := said(whole)
		if errA == nil && errB == nil && same(a, b) && slices.Equal(comments(spliced), comments(whole)) {
			out = spliced
		}
	}
	if len(out) > yamlfile.MaxFile {
		return nil, fmt.Errorf("the configuration would come to %d bytes, more than the %d that a file may have", len(out), yamlfile.MaxFile)
	}
	return out, nil
}

// same: two files say the same.
func same(a, b *Config) bool {
	x, y := *a, *b
	x.origin, y.origin, x.compared, y.compared = nil, nil, 0, 0
	return reflect.DeepEqual(x, y)
}

func encode(n *yaml.Node, compact bool) ([]byte, error) {
	var b bytes.Buffer
	w := yaml.NewEncoder(&b)
	w.SetIndent(2)
	if compact {
		w.CompactSeqIndent()
	}
	if err := w.Encode(n); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	err := w.Close()
	return b.Bytes(), err
}

// splice puts the items that were changed into the text as it was given, so that blank
// lines and the style of all others stay; nil: it is not written so that this can be
// done.
func (e *Editor) splice() []byte {
	if e.touched[""] != nil {
		return nil
	}
	root := e.doc.Content[0]
	lines := bytes.SplitAfter(e.text, []byte("\n"))
	for at := len(root.Content) - 2; at >= 0; at -= 2 { // from behind, so that places stay
		touched, list := e.touched[root.Content[at].Value], root.Content[at+1]
		if touched == nil {
			continue
		}
		if root.Style&yaml.FlowStyle != 0 || list.Style&yaml.FlowStyle != 0 || root.Content[at].Line == 0 || list.Content[0].Line == 0 {
			return nil
		}
		end := len(lines)
		if at+2 < len(root.Content) && root.Content[at+2].Line > 0 {
			end = root.Content[at+2].Line - 1
		}
		for n := len(list.Content) - 1; n >= 0; n-- {
			item := list.Content[n]
			from := item.Line - 1 // a new one: behind those that there were
			if end <= max(from, 0) {
				return nil
			}
			// What stands between two items belongs to the second.
			for end > max(from, 0)+1 && idle(lines[end-1]) {
				end--
			}
			if item.Line == 0 {
				from = end
			}
			if touched[n] {
				written := e.itemText(list, item, lines)
				if written == nil {
					return nil
				}
				if end > 0 && !bytes.HasSuffix(lines[end-1], []byte("\n")) {
					lines[end-1] = append(bytes.Clone(lines[end-1]), '\n')
				}
				lines = slices.Replace(lines, from, end, written)
			}
			end = from
		}
	}
	return bytes.Join(lines, nil)
}

// itemText is an item of a list of the root's as a line of its own, or several.
func (e *Editor) itemText(list, item *yaml.Node, lines [][]byte) []byte {
	dash := bytes.IndexByte(lines[list.Content[0].Line-1], '-')
	if dash < 0 {
		return nil
	}
	bare := *item
	bare.HeadComment, bare.FootComment = "", "" // they stand beside it, and stay
	one := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: []*yaml.Node{&bare}}
	data, err := encode(one, e.compact())
	if err != nil {
		return nil
	}
	indent := bytes.Repeat([]byte(" "), dash)
	var out []byte
	for line := range bytes.SplitAfterSeq(data, []byte("\n")) {
		if len(line) > 0 {
			out = append(append(out, indent...), line...)
		}
	}
	return out
}

// idle: a line says nothing.
func idle(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

// comments are those of a text, sorted. One that looks like one within quotes is there
// in both texts that are compared.
func comments(text []byte) (all []string) {
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if at := bytes.IndexByte(line, '#'); at == 0 || at > 0 && (line[at-1] == ' ' || line[at-1] == '\t') {
			all = append(all, string(bytes.TrimSpace(line[at:])))
		}
	}
	slices.Sort(all)
	return all
}

// compact: the dashes of the text's lists stand below their keys, not behind.
func (e *Editor) compact() bool {
	root := e.doc.Content[0]
	for i := 1; i < len(root.Content); i += 2 {
		if n := root.Content[i]; n.Kind == yaml.SequenceNode && n.Style&yaml.FlowStyle == 0 {
			return n.Column == root.Content[i-1].Column
		}
	}
	return true
}
