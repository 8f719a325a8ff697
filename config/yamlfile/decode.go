package yamlfile

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Document is a YAML file and what is wrong with it. It fills structs from
// YAML's tree. The library's own decoder stops at the first unknown key or
// wrong type and forgets where values stood; this one goes on, so that all
// problems are found at once, and leaves a position for each field to the
// checks that follow.
//
// A struct's fields have `yaml` tags; those without are not the file's.
// A type with UnmarshalText is one value; a struct with both is either.
type Document struct {
	File string
	// Empty is what remedies an empty file; Example, which may be nil, a legal
	// value of the field, "" where its type says enough.
	Empty   string
	Example func(field string, t reflect.Type) string

	At       map[string]*token.Position // by the field's path, as vips[0].name
	Bad      map[string]bool            // paths that did not decode: their zero value is no omission
	Problems Problems
	anchors  map[string]ast.Node
}

// Decode fills the struct that into points to. Its error is Problems, those
// that end the reading; others are in d.Problems and d.Bad.
func (d *Document) Decode(data []byte, into any) error {
	d.At, d.Bad, d.anchors = map[string]*token.Position{}, map[string]bool{}, map[string]ast.Node{}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		p := Problem{File: d.File, Wrong: err.Error(), Remedy: "correct the YAML"}
		if s := (*yaml.SyntaxError)(nil); errors.As(err, &s) && s.Token != nil {
			p.Line, p.Col = s.Token.Position.Line, s.Token.Position.Column
			p.Wrong = "not YAML: " + s.Message
		}
		return Problems{p}
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			d.add(doc.Body, "", "", "a second YAML document", "keep one document in one file")
			return d.Problems
		}
		body = doc.Body
	}
	if body == nil {
		return Problems{{File: d.File, Wrong: "empty", Remedy: d.Empty}}
	}
	d.value(body, "", reflect.ValueOf(into).Elem())
	return nil
}

// Problem records what is wrong with the field at path, unless the field did
// not even decode. If the file does not hold the field, the nearest mapping
// around it is pointed at.
func (d *Document) Problem(path, value, wrong, remedy string) {
	if d.Bad[path] || d.Bad[""] {
		return
	}
	p := Problem{File: d.File, Field: path, Value: value, Wrong: wrong, Remedy: remedy}
	for q := path; ; {
		if pos := d.At[q]; pos != nil {
			p.Line, p.Col = pos.Line, pos.Column
			break
		}
		i := strings.LastIndexAny(q, ".[")
		if i < 0 {
			break
		}
		q = q[:i]
	}
	d.Problems = append(d.Problems, p)
}

// Sort puts problems in the file's order and drops what was said twice.
func (d *Document) Sort() {
	sort.SliceStable(d.Problems, func(i, j int) bool {
		a, b := d.Problems[i], d.Problems[j]
		return a.Line < b.Line || a.Line == b.Line && a.Col < b.Col
	})
	d.Problems = slices.Compact(d.Problems)
}

func (d *Document) add(n ast.Node, path, value, wrong, remedy string) {
	p := Problem{File: d.File, Field: path, Value: value, Wrong: wrong, Remedy: remedy}
	if pos := position(n); pos != nil {
		p.Line, p.Col = pos.Line, pos.Column
	}
	d.Problems = append(d.Problems, p)
	d.Bad[path] = true
}

// position is where a reader would look: a mapping begins at its first key,
// not at that key's colon.
func position(n ast.Node) *token.Position {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return position(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return position(n.Key)
	}
	if t := n.GetToken(); t != nil {
		return t.Position
	}
	return nil
}

// resolve follows anchors, aliases and tags to the node that holds the value.
func (d *Document) resolve(n ast.Node) ast.Node {
	for {
		switch m := n.(type) {
		case *ast.AnchorNode:
			d.anchors[m.Name.String()] = m.Value
			n = m.Value
		case *ast.AliasNode:
			target, ok := d.anchors[m.Value.String()]
			if !ok {
				return nil
			}
			n = target
		case *ast.TagNode:
			n = m.Value
		default:
			return n
		}
	}
}

// value decodes n into v. path is the field's name in messages.
func (d *Document) value(n ast.Node, path string, v reflect.Value) {
	if _, known := d.At[path]; !known {
		d.At[path] = position(n)
	}
	if a, isAlias := n.(*ast.AliasNode); isAlias && d.anchors[a.Value.String()] == nil {
		d.add(n, path, "*"+a.Value.String(), "no such anchor above", "define it with &"+a.Value.String())
		return
	}
	n = d.resolve(n)
	if n == nil || n.Type() == ast.NullType {
		return // as if it were not there: the default
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Struct && !isScalarType(v.Type()) && isText(v.Type()) && scalar(n), isScalarType(v.Type()):
		if !scalar(n) {
			d.add(n, path, "", "must be one value, not a list or mapping", "write "+d.example(path, v.Type()))
			return
		}
		if err := setScalar(v, n); err != nil {
			d.add(n, path, text(n), err.Error(), "write "+d.example(path, v.Type()))
		}
	case v.Kind() == reflect.Slice:
		d.list(n, path, v)
	case v.Kind() == reflect.Map:
		d.names(n, path, v)
	default:
		d.mapping(n, path, v)
	}
}

func (d *Document) list(n ast.Node, path string, v reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		value := ""
		if scalar(n) {
			value = text(n)
		}
		d.add(n, path, value, "must be a list", "put each item on a line of its own after a dash")
		return
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		d.value(item, itemPath, out.Index(i))
		if r := d.resolve(item); r == nil || r.Type() == ast.NullType {
			d.add(item, itemPath, "", "an empty item", "fill it in or remove the dash")
		}
	}
	v.Set(out)
}

func (d *Document) mapping(n ast.Node, path string, v reflect.Value) {
	pairs, ok := d.pairs(n)
	if !ok {
		value := ""
		if scalar(n) {
			value = text(n)
		}
		d.add(n, path, value, "must be a mapping", "write key: value pairs: "+strings.Join(keys(v.Type()), ", "))
		return
	}
	own := map[string]bool{}
	for _, p := range pairs {
		if p.Key.IsMergeKey() {
			// <<: *anchor gives what the mapping itself does not.
			defer func(value ast.Node) {
				if m, ok := d.resolve(value).(*ast.MappingNode); ok {
					rest := &ast.MappingNode{BaseNode: m.BaseNode, Start: m.Start}
					for _, q := range m.Values {
						if !own[text(q.Key)] {
							rest.Values = append(rest.Values, q)
						}
					}
					if len(rest.Values) > 0 {
						d.mapping(rest, path, v)
					}
				} else {
					d.add(value, path, "", "<< must name a mapping", "use <<: *anchor")
				}
			}(p.Value)
			continue
		}
		key := text(p.Key)
		own[key] = true
		keyPath := key
		if path != "" {
			keyPath = path + "." + key
		}
		field, ok := fieldOf(v, key)
		if !ok {
			remedy := "known here: " + strings.Join(keys(v.Type()), ", ")
			if near := Nearest(key, keys(v.Type())); near != "" {
				remedy = "write " + near + " (" + remedy + ")"
			}
			d.add(p.Key, keyPath, "", "unknown key", remedy)
			continue
		}
		d.value(p.Value, keyPath, field)
	}
}

// names decodes a mapping whose keys are names that the file chose, each with
// one text.
func (d *Document) names(n ast.Node, path string, v reflect.Value) {
	pairs, ok := d.pairs(n)
	if !ok {
		value := ""
		if scalar(n) {
			value = text(n)
		}
		d.add(n, path, value, "must be a mapping", "write name: text pairs")
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(pairs)))
	for _, p := range pairs { // the parser refuses a key that is there twice
		key := text(p.Key)
		keyPath := path + "." + key
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(p.Value, keyPath, item)
		v.SetMapIndex(reflect.ValueOf(key), item)
	}
}

// pairs is what a mapping holds; false if n is none.
func (d *Document) pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for i := range v.NumField() {
		if keyOf(v.Type().Field(i)) == key && key != "" {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// keyOf is the field's key, without options that are for writers; "" if it has
// none.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return key
}

// keys is what a mapping of type t may hold, in the order of the struct.
func keys(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		if k := keyOf(t.Field(i)); k != "" {
			names = append(names, k)
		}
	}
	return names
}

func scalar(n ast.Node) bool {
	_, ok := n.(ast.ScalarNode)
	return ok
}

// text is a scalar as it was written, so that 0123 in a name or a secret
// stays what it is.
func text(n ast.Node) string {
	switch n := n.(type) {
	case *ast.LiteralNode:
		return n.Value.Value
	case *ast.StringNode:
		return n.Value
	}
	return n.GetToken().Value
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func isScalarType(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return isText(t) && len(keys(t)) == 0
	case reflect.Slice, reflect.Map:
		return isText(t)
	}
	return true
}

func setScalar(v reflect.Value, n ast.Node) error {
	s := text(n)
	switch p := v.Addr().Interface().(type) {
	case *netip.Addr:
		a, err := netip.ParseAddr(s)
		if err != nil {
			return errors.New("not an IP address")
		}
		*p = a
		return nil
	case *netip.Prefix:
		if a, err := netip.ParseAddr(s); err == nil {
			*p = netip.PrefixFrom(a, a.BitLen())
			return nil
		}
		q, err := netip.ParsePrefix(s)
		if err != nil {
			return errors.New("not an address or a prefix")
		}
		*p = q
		return nil
	case encoding.TextUnmarshaler:
		return p.UnmarshalText([]byte(s))
	case *time.Duration:
		t, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("not a duration")
		}
		*p = t
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		b, isBool := n.(*ast.BoolNode)
		if !isBool {
			return errors.New("neither true nor false")
		}
		v.SetBool(b.Value)
	case reflect.Int:
		i, err := strconv.Atoi(s)
		if err != nil {
			return errors.New("not a whole number")
		}
		v.SetInt(int64(i))
	case reflect.Uint16:
		u, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return errors.New("not a number from 0 to 65535")
		}
		v.SetUint(u)
	default:
		panic("yamlfile: no decoding for " + v.Type().String())
	}
	return nil
}

// example is a legal value of type t for the field at path, for messages.
func (d *Document) example(path string, t reflect.Type) string {
	if d.Example != nil {
		if e := d.Example(path[strings.LastIndexByte(path, '.')+1:], t); e != "" {
			return e
		}
	}
	switch t {
	case reflect.TypeFor[netip.Addr]():
		return "an address such as 192.0.2.10 or 2001:db8::10"
	case reflect.TypeFor[netip.Prefix]():
		return "an address or a prefix such as 10.200.0.0/16"
	case reflect.TypeFor[time.Duration]():
		return "a duration such as 2s or 500ms"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Uint16:
		return "1 to 65535"
	case reflect.Int:
		return "a whole number"
	}
	return "a text"
}
