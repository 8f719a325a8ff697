// Package yamlfile reads YAML files for people: everything that is wrong with
// a file at once, each problem with its line, field, value and remedy.
package yamlfile

import (
	"fmt"
	"strings"
	"unicode"
)

// Problem is one thing wrong with a file: where, what and the remedy.
type Problem struct {
	File      string
	Line, Col int    // from 1; 0: the file, or the line, as a whole
	Field     string // path in the file, such as vips[0].servers[1].weight
	Value     string // as written; empty where there is none
	Wrong     string
	Remedy    string
}

// String is the problem as one line: file:line:col: field: value: what is
// wrong; remedy.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		if p.Col > 0 {
			fmt.Fprintf(&b, ":%d", p.Col)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	if p.Value != "" {
		b.WriteString(short(p.Value) + ": ")
	}
	b.WriteString(p.Wrong)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	// One problem is one line whatever the file holds, and no terminal obeys it.
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(b.String(), "\uFFFD"), unicode.IsControl), " ")
}

// longestValue is how many bytes of a value are shown.
const longestValue = 200

func short(value string) string {
	if len(value) <= longestValue {
		return value
	}
	return strings.ToValidUTF8(value[:longestValue], "") + "…"
}

// Problems is everything wrong with a file, in the file's order. As an error
// it is one line a problem, and one more that counts those beyond mostShown.
type Problems []Problem

// mostShown problems are told, as one slip in a large file makes thousands, and
// mostKept end the reading of a file.
const (
	mostShown = 100
	mostKept  = 10_000
)

func (p Problems) Error() string {
	var lines []string
	for _, q := range p[:min(len(p), mostShown)] {
		lines = append(lines, q.String())
	}
	if more := len(p) - mostShown; more > 0 {
		lines = append(lines, fmt.Sprintf("%s: and %d problems more; mend these first", p[0].File, more))
	}
	return strings.Join(lines, "\n")
}

// Near is Nearest for a file's problems; it gives no suggestions beyond those
// that are shown, as each takes a look at all that is known.
func (d *Document) Near(word string, known func() []string) string {
	if len(d.Problems) >= mostShown {
		return ""
	}
	return Nearest(word, known())
}

// longestWord is how many bytes of a slip are compared with what is known.
const longestWord = 256

// Nearest is the known word closest to word, if it is close enough to be
// what was meant (at most a third of the letters differ), else "".
func Nearest(word string, known []string) string {
	if len(word) > longestWord {
		return ""
	}
	best, bestDistance := "", len(word)/3+1
	for _, k := range known {
		if max(len(k)-len(word), len(word)-len(k)) > bestDistance {
			continue // and so is the distance
		}
		if d := distance(word, k); d <= bestDistance && (best == "" || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
