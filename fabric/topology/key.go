package topology

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// maxKeyFile bounds key_file, in bytes.
const maxKeyFile = 4 << 10

// keyRemedy ends messages about the key.
const keyRemedy = "write 32 hex digits, the same for all routers and hosts, or run `fairlead secret fabric.key` beside this file and write key_file: fabric.key"

// readKey fills in the selector's key: key, or the first 32 digits of what
// `fairlead secret` wrote into key_file. The key itself stays out of messages.
func (c *checker) readKey() {
	s := &c.file.Selector
	field, text := "selector.key", s.Key
	switch {
	case s.Key != "" && s.KeyFile != "":
		c.Problem("selector.key_file", s.KeyFile, "both key and key_file are given", "keep one of them")
		return
	case s.KeyFile != "":
		field = "selector.key_file"
		var ok bool
		if text, ok = c.readKeyFile(s.KeyFile); !ok {
			return
		}
	case s.Key == "":
		c.Problem(field, "", "missing", keyRemedy)
		return
	}
	key, err := hex.DecodeString(text)
	want := len(c.fabric.Selector.Key)
	switch {
	case err != nil:
		c.Problem(field, "", "not hexadecimal", keyRemedy)
	case len(key) != want && !(s.KeyFile != "" && len(key) == 2*want):
		c.Problem(field, "", fmt.Sprintf("%d bytes, must be %d", len(key), want), keyRemedy)
	case len(bytes.Trim(key, string(key[:1]))) == 0:
		c.Problem(field, "", "one byte repeated is no key", keyRemedy)
	default:
		copy(c.fabric.Selector.Key[:], key)
	}
}

func (c *checker) readKeyFile(name string) (text string, ok bool) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.dir, path)
	}
	data, info, err := yamlfile.ReadBounded(path, maxKeyFile)
	if err != nil {
		wrong, remedy := yamlfile.Unread(err, "make one with `fairlead secret "+path+"`")
		c.Problem("selector.key_file", name, wrong, remedy)
		return "", false
	}
	if wrong, remedy := yamlfile.Exposed(path, info); wrong != "" {
		c.Problem("selector.key_file", name, wrong, remedy)
		return "", false
	}
	return string(bytes.TrimSpace(data)), true
}
