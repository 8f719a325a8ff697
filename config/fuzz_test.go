package config

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// FuzzParse: a file is refused with problems that each name what is wrong and a
// remedy, or is legal however often it is looked at.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(steered))
	a, err := txtar.ParseFile("testdata/bad.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range a.Files {
		if strings.HasSuffix(file.Name, ".yaml") {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(filepath.Join(t.TempDir(), "f.yaml"), data)
		var problems yamlfile.Problems
		switch {
		case err == nil && c.SecretFile == "" && c.Fabric == "":
			if err := c.Validate(); err != nil {
				t.Errorf("legal at first, then: %v", err)
			}
		case err != nil && !errors.As(err, &problems):
			t.Errorf("%T %v", err, err)
		}
		for _, p := range problems {
			if p.Wrong == "" || p.Remedy == "" || p.Line > 1+len(data) || strings.ContainsAny(p.String(), "\n\x1b") {
				t.Errorf("%+v", p)
			}
		}
	})
}
