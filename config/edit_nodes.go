package config

import (
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// The tree below an Editor. Text may name a list once and use it in many places, by an
// anchor: what is changed is first made the one place's own.

// list is one of the root's, which nothing else shares.
func (e *Editor) list(key string) *yaml.Node {
	root := e.doc.Content[0]
	at := find(root, key)
	if at < 0 {
		root.Content = append(root.Content, text(key), &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"})
		at = len(root.Content) - 2
	}
	if isNull(root.Content[at+1]) {
		root.Content[at+1] = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	}
	return root.Content[at+1]
}

// item is one of a list's, which nothing else shares.
func (e *Editor) item(key string, n int) *yaml.Node {
	e.touch(key, n)
	list := e.list(key)
	if list.Kind == yaml.AliasNode || list.Content[n].Kind == yaml.AliasNode || list.Anchor != "" || list.Content[n].Anchor != "" {
		e.expand()
		list = e.list(key)
	}
	return list.Content[n]
}

// touch remembers what Text has to write anew.
func (e *Editor) touch(key string, n int) {
	if e.touched[key] == nil {
		e.touched[key] = map[int]bool{}
	}
	e.touched[key][n] = true
}

// pool is the list of servers of a VIP, which nothing else shares.
func (e *Editor) pool(at int) *yaml.Node {
	v := e.item("vips", at)
	n := find(v, "servers")
	if n < 0 { // it comes by <<
		e.expand()
		v = e.item("vips", at)
		if n = find(v, "servers"); n < 0 {
			v.Content = append(v.Content, text("servers"), &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle})
			n = len(v.Content) - 2
		}
	}
	list := v.Content[n+1]
	switch {
	case list.Kind == yaml.AliasNode && !anchored(list.Alias.Content...):
		copied := *list.Alias
		copied.Anchor = ""
		copied.Content = nil
		for _, c := range list.Alias.Content {
			copied.Content = append(copied.Content, copyOf(c))
		}
		*list = copied
	case list.Kind != yaml.AliasNode && list.Anchor != "" && !anchored(list.Content...):
		e.handOver(list)
	case list.Kind == yaml.AliasNode || anchored(list.Content...):
		e.expand()
		v = e.item("vips", at)
		list = v.Content[find(v, "servers")+1]
	}
	return list
}

// handOver makes the first alias of list what the others are aliases of.
func (e *Editor) handOver(list *yaml.Node) {
	var next *yaml.Node
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		switch {
		case n.Kind == yaml.AliasNode && n.Alias == list && next == nil:
			next = n
			*n = *copyOf(list)
		case n.Kind == yaml.AliasNode && n.Alias == list:
			n.Alias = next
		}
		for _, c := range n.Content {
			visit(c)
		}
	}
	for i, section := range e.doc.Content[0].Content {
		for n, item := range section.Content {
			before := next
			if visit(item); next != before {
				e.touch(e.doc.Content[0].Content[i-1].Value, n)
			}
		}
	}
	list.Anchor = ""
}

// expand writes out all aliases, where one of them is about to say something else than
// the others.
func (e *Editor) expand() {
	e.touched[""] = map[int]bool{}
	root := e.doc.Content[0]
	*root = *written(root)
}

// written is n without aliases, merges and anchors.
func written(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	out := *n
	out.Anchor, out.Content = "", nil
	var merged *yaml.Node
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && c.ShortTag() == "!!merge" {
			merged = written(n.Content[i+1])
			continue
		}
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].ShortTag() == "!!merge" {
			continue
		}
		out.Content = append(out.Content, written(c))
	}
	for i := 0; merged != nil && i < len(merged.Content); i += 2 {
		if find(&out, merged.Content[i].Value) < 0 {
			out.Content = append(out.Content, merged.Content[i:i+2]...)
		}
	}
	return &out
}

// copyOf is a node of its own.
func copyOf(n *yaml.Node) *yaml.Node {
	out := *n
	out.Content = nil
	for _, c := range n.Content {
		out.Content = append(out.Content, copyOf(c))
	}
	return &out
}

func anchored(nodes ...*yaml.Node) bool {
	return slices.ContainsFunc(nodes, func(n *yaml.Node) bool {
		return n.Anchor != "" || n.Kind == yaml.AliasNode || anchored(n.Content...)
	})
}

// find is where a mapping has a key, -1: nowhere.
func find(n *yaml.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key && n.Content[i].ShortTag() != "!!merge" {
			return i
		}
	}
	return -1
}

// set gives a key of a mapping a value, or takes it out.
func set(n *yaml.Node, key string, value *yaml.Node, out bool) {
	at := find(n, key)
	switch {
	case at >= 0 && out:
		n.Content = slices.Delete(n.Content, at, at+2)
	case at >= 0:
		value.LineComment = n.Content[at+1].LineComment
		n.Content[at+1] = value
	case !out:
		n.Content = append(n.Content, text(key), value)
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// text is a value as the library quotes it where that is needed: a server may be
// called true, or 12.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

func number(i int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(i)}
}

func truth(b bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(b)}
}
