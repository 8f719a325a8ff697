package cli

import (
	"io"
	"strings"
	"unicode"
)

// Legible writes text to w without what a terminal would obey: names and errors come from
// other machines.
func Legible(w io.Writer) io.Writer { return legible{w} }

type legible struct{ w io.Writer }

// Write implements io.Writer.
func (l legible) Write(text []byte) (int, error) {
	if _, err := io.WriteString(l.w, LegibleText(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// LegibleText is text with spaces for control characters, but ends of lines and tabs.
func LegibleText(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return ' '
		}
		return c
	}, text)
}
