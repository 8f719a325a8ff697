package yamlfile

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxValues and maxText (in bytes) bound what one file may come to once its
// aliases are put in, and maxDepth how deep: far above any deployment's file
// (1,000 VIPs with 100 servers each, by name and weight, are 300,000 values, and 500,000 by what is counted before), and
// low enough that a file which doubles itself by aliases, repeats a long text by
// them, or an alias that holds itself, is refused within a second.
const (
	MaxValues = 1 << 19
	maxText   = 32 << 20
	maxDepth  = 64
)

// Position is a place in a file, from 1.
type Position struct{ Line, Col int }

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
	// Most is how many items lists may have, by path without numbers, as vips[].servers.
	// A document that has it may be sent by others: what it can have is counted first.
	Most map[string]int

	At       map[string]*Position // by the field's path, as vips[0].name
	Bad      map[string]bool      // paths that did not decode: their zero value is no omission
	Problems Problems
	values   int // decoded so far, MaxValues+1 once nothing more is read
	text     int // bytes of them
	depth    int // of the value that is being decoded
}

// Decode fills the struct that into points to. Its error is Problems, those
// that end the reading; others are in d.Problems and d.Bad.
func (d *Document) Decode(data []byte, into any) error {
	d.At, d.Bad, d.values, d.text = map[string]*Position{}, map[string]bool{}, 0, 0
	if d.Most != nil {
		if wrong, remedy := crowded(data); wrong != "" {
			return Problems{{File: d.File, Wrong: wrong, Remedy: remedy}}
		}
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		// The library reads UTF-16, in which tagDirective finds nothing.
		return Problems{{File: d.File, Line: 1, Wrong: "not UTF-8", Remedy: "save it as UTF-8"}}
	}
	if line := tagDirective(data); line > 0 {
		return Problems{{File: d.File, Line: line, Wrong: "a %TAG directive", Remedy: "remove it: no key has a tag"}}
	}
	var body *yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			if body == nil {
				return Problems{{File: d.File, Wrong: "empty", Remedy: d.Empty}}
			}
			d.value(body, "", reflect.ValueOf(into).Elem())
			if d.values > MaxValues {
				return d.Problems
			}
			return nil
		case err != nil:
			return Problems{d.syntax(data, err)}
		}
		next := doc.Content[0]
		if next.Kind == yaml.ScalarNode && next.Value == "" && isNull(next) {
			continue // nothing between two lines of dashes
		}
		if body != nil {
			d.add(next, "", "", "a second YAML document", "keep one document in one file")
			return d.Problems
		}
		body = next
	}
}

// tagDirective is the line of the first %TAG directive, 0 without one. The
// library compares each with all before it, which takes half a minute for a
// file of them. Where YAML ends lines, and after a byte order mark, one may be.
func tagDirective(data []byte) int {
	for at := 0; ; at++ {
		next := bytes.Index(data[at:], []byte("%TAG"))
		if next < 0 {
			return 0
		}
		at += next
		if before, _ := utf8.DecodeLastRune(data[:at]); at == 0 || strings.ContainsRune("\n\r\u0085\u2028\u2029\ufeff", before) {
			return 1 + bytes.Count(data[:at], []byte("\n"))
		}
	}
}

// syntax is an error of the library as a problem. It knows the line, but for
// the first one, where it says none, and an alias of no anchor.
func (d *Document) syntax(data []byte, err error) Problem {
	p := Problem{File: d.File, Line: 1, Remedy: "correct the YAML"}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if _, scanErr := fmt.Sscanf(text, "line %d:", &p.Line); scanErr == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	if name, ok := strings.CutPrefix(text, "unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "'")
		p.Line = 1 + bytes.Count(data[:max(bytes.Index(data, []byte("*"+name)), 0)], []byte("\n"))
		p.Remedy = "define it above with &" + name
	}
	p.Wrong = "not YAML: " + text
	return p
}

// Problem records what is wrong with the field at path, unless the field did
// not even decode. If the file does not hold the field, the nearest mapping
// around it is pointed at.
func (d *Document) Problem(path, value, wrong, remedy string) {
	if d.Bad[path] || d.Bad[""] || len(d.Problems) >= mostKept {
		return
	}
	p := Problem{File: d.File, Field: path, Value: value, Wrong: wrong, Remedy: remedy}
	for q := path; ; {
		if pos := d.At[q]; pos != nil {
			p.Line, p.Col = pos.Line, pos.Col
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

func (d *Document) add(n *yaml.Node, path, value, wrong, remedy string) {
	d.Problems = append(d.Problems, Problem{File: d.File, Line: n.Line, Col: n.Column, Field: path, Value: value, Wrong: wrong, Remedy: remedy})
	d.Bad[path] = true
	if len(d.Problems) == mostKept {
		d.values = MaxValues + 1
	}
}

// resolve follows aliases to the node that holds the value. An alias may lead
// to one around it: value bounds how deep.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// isNull: as if it were not there.
func isNull(n *yaml.Node) bool { return scalar(n) && n.ShortTag() == "!!null" }

// enough says whether n, which is counted with its text, is more than a file
// may have, or deeper. That is said once, and ends the reading.
func (d *Document) enough(n *yaml.Node, path string) bool {
	if d.values > MaxValues {
		return true
	}
	d.values++
	d.text += len(resolve(n).Value)
	if d.values <= MaxValues && d.text <= maxText && d.depth < maxDepth {
		return false
	}
	wrong, remedy := fmt.Sprintf("with aliases put in, the file has more than %d values", MaxValues), "write fewer servers or VIPs into one file, and see what its aliases repeat"
	if d.text > maxText {
		wrong = fmt.Sprintf("with aliases put in, the file has more than %d MiB of text", maxText>>20)
		path = "" // it may be what is long
	}
	if d.depth >= maxDepth {
		wrong, remedy = fmt.Sprintf("nested deeper than %d levels", maxDepth), "see whether an alias holds itself"
		path = "" // it would be long, and say nothing
	}
	d.stop(n, path, wrong, remedy)
	return true
}

// value decodes n into v. path is the field's name in messages.
func (d *Document) value(n *yaml.Node, path string, v reflect.Value) {
	d.depth++
	defer func() { d.depth-- }()
	if isNull(resolve(n)) {
		return // as if it were not there
	}
	if _, known := d.At[path]; !known {
		d.At[path] = &Position{n.Line, n.Column}
	}
	n = resolve(n)
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
			d.add(n, path, n.Value, err.Error(), "write "+d.example(path, v.Type()))
		}
	case v.Kind() == reflect.Slice:
		d.list(n, path, v)
	case v.Kind() == reflect.Map:
		d.names(n, path, v)
	default:
		d.mapping(n, path, v)
	}
}

func (d *Document) list(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.add(n, path, written(n), "must be a list", "put each item on a line of its own after a dash")
		return
	}
	if d.long(n, path) {
		return
	}
	// Grown as it is filled: what is too much for a file is no room either.
	out := reflect.MakeSlice(v.Type(), 0, 0)
	for i, item := range n.Content {
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		if d.enough(item, itemPath) {
			return
		}
		out = reflect.Append(out, reflect.Zero(v.Type().Elem()))
		d.value(item, itemPath, out.Index(i))
		if isNull(resolve(item)) {
			d.add(item, itemPath, "", "an empty item", "fill it in or remove the dash")
		}
	}
	v.Set(out)
}

func (d *Document) mapping(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.add(n, path, written(n), "must be a mapping", "write key: value pairs: "+strings.Join(keys(v.Type()), ", "))
		return
	}
	own := map[string]bool{}
	var merged, mergeKey *yaml.Node
	d.pairs(n, path, func(key, value *yaml.Node, keyPath string) {
		if key.ShortTag() == "!!merge" {
			// By its tag a key of any name is one.
			if merged != nil {
				d.add(key, keyPath, "", fmt.Sprintf("a second merge key, after line %d", mergeKey.Line), "keep one <<")
				return
			}
			merged, mergeKey = value, key
			return
		}
		own[key.Value] = true
		field, ok := fieldOf(v, key.Value)
		if !ok {
			remedy := "known here: " + strings.Join(keys(v.Type()), ", ")
			if near := d.Near(key.Value, func() []string { return keys(v.Type()) }); near != "" {
				remedy = "write " + near + " (" + remedy + ")"
			}
			d.add(key, keyPath, "", "unknown key", remedy)
			return
		}
		d.value(value, keyPath, field)
	})
	if merged != nil && d.values <= MaxValues {
		d.merge(merged, path, v, own)
	}
}

// merge decodes what <<: *anchor gives, which is what the mapping itself, with
// the keys own, does not.
func (d *Document) merge(from *yaml.Node, path string, v reflect.Value, own map[string]bool) {
	d.depth++
	defer func() { d.depth-- }()
	m := resolve(from)
	if m.Kind != yaml.MappingNode {
		d.add(from, path, "", "<< must name a mapping", "use <<: *anchor")
		return
	}
	rest := &yaml.Node{Kind: yaml.MappingNode, Line: m.Line, Column: m.Column}
	for i := 0; i < len(m.Content); i += 2 {
		if !own[m.Content[i].Value] {
			rest.Content = append(rest.Content, m.Content[i:i+2]...) // mapping counts it
		} else if d.enough(m.Content[i], path) {
			return
		}
	}
	d.mapping(rest, path, v)
}

// names decodes a mapping whose keys are names that the file chose, each with
// one text.
func (d *Document) names(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.add(n, path, written(n), "must be a mapping", "write name: text pairs")
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.pairs(n, path, func(key, value *yaml.Node, keyPath string) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(value, keyPath, item)
		v.SetMapIndex(reflect.ValueOf(key.Value), item)
	})
}

// pairs calls each with what a mapping holds and the path of it, but for keys
// that are no text or are there twice.
func (d *Document) pairs(n *yaml.Node, path string, each func(key, value *yaml.Node, keyPath string)) {
	first := map[string]*yaml.Node{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		d.text += len(resolve(value).Value) // a list counts its own
		if d.enough(key, path) {
			return
		}
		if !scalar(key) {
			d.add(key, path, "", "a key that is no text", "write key: value pairs")
			continue
		}
		keyPath := key.Value
		if path != "" {
			keyPath = path + "." + key.Value
		}
		if before := first[key.Value]; before != nil {
			d.add(key, keyPath, "", fmt.Sprintf("written before, in line %d", before.Line), "keep one of them")
			continue
		}
		first[key.Value] = key
		each(key, value, keyPath)
	}
}

func scalar(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode }

// written is a scalar as it was written, so that 0123 in a name or a secret
// stays what it is; "" for what is none.
func written(n *yaml.Node) string {
	if scalar(n) {
		return n.Value
	}
	return ""
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

func setScalar(v reflect.Value, n *yaml.Node) error {
	s := n.Value
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
		if n.ShortTag() != "!!bool" {
			return errors.New("neither true nor false")
		}
		v.SetBool(strings.EqualFold(s, "true"))
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
