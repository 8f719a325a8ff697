package topology

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// mustBeProblems: err names what is wrong with the file, and a remedy.
func mustBeProblems(t *testing.T, err error) {
	var problems yamlfile.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("%T %v", err, err)
	}
	for _, p := range problems {
		if p.Wrong == "" || p.Remedy == "" || strings.ContainsAny(p.String(), "\n\x1b") {
			t.Errorf("%+v", p)
		}
	}
}

// FuzzParse: a fabric's file is refused with problems, or is the same fabric
// written anew.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	for _, generate := range []func() (*Fabric, error){
		func() (*Fabric, error) { return FatTree(4) },
		func() (*Fabric, error) { return LeafSpine(3, 2, 2) },
	} {
		fabric, err := generate()
		if err != nil {
			f.Fatal(err)
		}
		fabric.Selector.Key[0] = 1
		var b bytes.Buffer
		if err := Write(&b, fabric); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("selector: {key: 00, radix: 1}\nrouters: [{name: a}]\nlinks: [{between: [a, b], ports: [none, x], capacity: 1e9}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if fabric, err := parse("nowhere/f.yaml", data, true); err != nil {
			mustBeProblems(t, err)
		} else if err := Write(&bytes.Buffer{}, fabric); err != nil {
			t.Error(err)
		}
		fabric, err := Parse("nowhere/f.yaml", data)
		if err != nil {
			mustBeProblems(t, err)
		} else if fabric.KeyFile == "" {
			roundTrip(t, fabric)
		}
	})
}

// FuzzLLDP: a machine's report is refused by its name, or gives a fabric that can
// be written; what the file does not allow, it says as of any file.
func FuzzLLDP(f *testing.F) {
	for _, name := range []string{"router-a.json", "router-b.json", "router-c.json"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"lldp": [{"interface": [{"name": "e1", "chassis": [{"name": [{"value": "b"}]}], "port": [{"descr": [{"value": "e٣"}]}]}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		fabric, err := FromLLDP(map[string][]byte{"a.json": data}, LLDPOptions{})
		if err != nil {
			if !strings.Contains(err.Error(), "a.json") && !strings.HasPrefix(err.Error(), "router ") {
				t.Errorf("error %q", err)
			}
			return
		}
		var b bytes.Buffer
		if err := Write(&b, fabric); err != nil {
			t.Fatal(err)
		}
		if _, err := parse("f.yaml", b.Bytes(), true); err != nil {
			mustBeProblems(t, err)
		}
	})
}
