package yamlfile

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What a file may cost is bounded before it is paid for: how large it is, before it is
// looked at; how many values it can have, before the library makes a tree of them, of some
// 200 bytes each; how long a list is, before its items are filled in and checked against
// each other. What aliases come to is counted as they are put in (enough).

// crowded says why text is not read at all, and the remedy; "" if it is. It counts marks:
// octets without which there is no key and no value. A text that people write has at least
// as many keys and values as marks, and no text has more than two for each mark.
func crowded(text []byte) (wrong, remedy string) {
	if len(text) > MaxFile {
		return fmt.Sprintf("has %d bytes, and a file at most %d", len(text), MaxFile), "write fewer servers or VIPs into one file, and a list that repeats once, as &pool [s1, s2], and then as *pool"
	}
	marks := 0
	for line := range bytes.Lines(text) {
		if marks += inLine(line); marks > MaxValues {
			return fmt.Sprintf("has more than %d keys and values", MaxValues), "write fewer servers or VIPs into one file"
		}
	}
	return "", ""
}

// What may stand before a remark, and behind a colon, a dash or a question mark that means
// something: blanks, and first and last octets of what ends a line. That is not \n alone in
// YAML, but \r, too, and three characters of Unicode's.
const (
	beforeRemark = " \t\r\x85\xa8\xa9"
	behindMark   = " \t\r,]}\xc2\xe2"
)

// inLine counts what stands between two \n: each opening bracket and comma is a mark, each
// colon, dash and question mark with a blank behind it, and what may begin a remark. Where
// there are no brackets and commas a colon is two, for its key and its value. Where there
// are, dashes and remarks count only as far as they are more. A line without marks is one.
func inLine(line []byte) int {
	line = bytes.TrimRight(line, " \t\r\n")
	if len(line) == 0 {
		return 0
	}
	flow, pairs, others := 0, 0, 0
	for i, c := range line {
		ends := i+1 == len(line) || strings.IndexByte(behindMark, line[i+1]) >= 0
		switch {
		case c == ',' || c == '[' || c == '{':
			flow++
		case c == ':' && ends:
			pairs++
		case (c == '-' || c == '?') && ends, c == '#' && (i == 0 || strings.IndexByte(beforeRemark, line[i-1]) >= 0):
			others++
		}
	}
	if flow == 0 {
		others += pairs
	}
	return max(max(flow, others)+pairs, 1)
}

// long says whether the list n at path has more items than d.Most says. That ends the
// reading.
func (d *Document) long(n *yaml.Node, path string) bool {
	if d.Most == nil {
		return false
	}
	most, bounded := d.Most[pattern(path)]
	if !bounded || len(n.Content) <= most {
		return false
	}
	d.stop(n, path, fmt.Sprintf("has %d items, and may have %d", len(n.Content), most), "remove some")
	return true
}

// pattern is path without the numbers in its brackets.
func pattern(path string) string {
	var b strings.Builder
	for rest := path; ; {
		before, behind, found := strings.Cut(rest, "[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("[]")
		_, rest, _ = strings.Cut(behind, "]")
	}
}

// stop ends the reading with one problem, whatever was found before.
func (d *Document) stop(n *yaml.Node, path, wrong, remedy string) {
	d.values = MaxValues + 1
	d.Problems = nil
	d.add(n, path, "", wrong, remedy)
}
