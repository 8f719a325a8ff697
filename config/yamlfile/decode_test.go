package yamlfile

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// even is one value that checks itself.
type even int

func (e *even) UnmarshalText(text []byte) error {
	if len(text) != 1 || (text[0]-'0')%2 != 0 {
		return errors.New("not an even digit")
	}
	*e = even(text[0] - '0')
	return nil
}

// either is a text or a mapping.
type either struct {
	Name string `yaml:"name"`
	Left bool   `yaml:"left,omitempty"`
}

func (e *either) UnmarshalText(text []byte) error {
	*e = either{Name: string(text)}
	return nil
}

type file struct {
	Digits  []even            `yaml:"digits,flow"`
	Items   []either          `yaml:"items"`
	Names   map[string]string `yaml:"names"`
	private int
}

const good = "digits: [2, 4]\nitems: [a, {name: b, left: true}]\nnames: {x: y}\n"

func TestDecode(t *testing.T) {
	d := &Document{File: "f"}
	var got file
	if err := d.Decode([]byte(good), &got); err != nil || len(d.Problems) > 0 {
		t.Fatal(err, d.Problems)
	}
	want := file{Digits: []even{2, 4}, Items: []either{{Name: "a"}, {Name: "b", Left: true}}, Names: map[string]string{"x": "y"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if p := d.At["items[1].left"]; p == nil || p.Line != 2 {
		t.Errorf("left is at %v", p)
	}
}

// TestProblems: all of them at once, each in its place, one line each.
func TestProblems(t *testing.T) {
	text := strings.NewReplacer("2,", "3,", "left: true", "lfet: true", "{x: y}", "[x]").Replace(good)
	d := &Document{File: "f", Example: func(field string, _ reflect.Type) string {
		if field == "digits[0]" {
			return "0, 2, 4, 6 or 8"
		}
		return ""
	}}
	if err := d.Decode([]byte(text), &file{}); err != nil {
		t.Fatal(err)
	}
	d.Problem("items[0].left", "", "missing", "write it")
	d.Problem("digits[0]", "3", "said before", "") // it did not decode
	d.Problem("items[0].left", "", "missing", "write it")
	d.Sort()
	const want = `f:1:10: digits[0]: 3: not an even digit; write 0, 2, 4, 6 or 8
f:2:9: items[0].left: missing; write it
f:2:22: items[1].lfet: unknown key; write left (known here: name, left)
f:3:8: names: must be a mapping; write name: text pairs`
	if d.Problems.Error() != want {
		t.Errorf("%s\nwant\n%s", d.Problems.Error(), want)
	}
}

func TestNoDocument(t *testing.T) {
	for text, want := range map[string]string{
		"":                 "f: empty; fill it",
		"# only a comment": "f: empty; fill it",
		"a: [":             "f:1: not YAML",
		"{}\n---\n{}":      "f:3:1: a second YAML document",
		"*x":               "f:1: not YAML: unknown anchor 'x' referenced; define it above with &x",
	} {
		d := &Document{File: "f", Empty: "fill it"}
		err := d.Decode([]byte(text), &file{})
		if err == nil && len(d.Problems) > 0 {
			err = d.Problems
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for i := range good { // whatever is cut off, it ends
		(&Document{File: "f"}).Decode([]byte(good[:i]), &file{}) //nolint:errcheck
	}
}
