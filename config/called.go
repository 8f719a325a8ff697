package config

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// FileName says whether a text may be called name in messages, which come into logs and
// onto terminals.
func FileName(name string) bool {
	const most = 255 // octets
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return len(name) <= most && utf8.ValidString(name) && !strings.ContainsFunc(name, hidden)
}

// OfVersion is what messages call the text that the store has of version v.
func OfVersion(v uint64) string { return fmt.Sprintf("fairlead.yaml of version %d", v) }
