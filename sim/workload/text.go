package workload

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode"
)

// maxLine bounds a line of a user's text file in bytes.
const maxLine = 1 << 16

// errLongLine says what a file of another kind most often looks like.
var errLongLine = errors.New("a line of 65,536 bytes or more: not a text file of this kind; fairlead sim workloads --help has the forms")

// textOf is a user's text: without the mark that some programs put before
// UTF-8, and an error where a line does not end, as of a device or a binary
// file, before memory does.
func textOf(r io.Reader) io.Reader {
	b := bufio.NewReader(r)
	if mark, _ := b.Peek(len(byteOrderMark)); string(mark) == byteOrderMark { // what is shorter has none
		_, _ = b.Discard(len(byteOrderMark)) // it was peeked
	}
	return &lines{from: b}
}

const byteOrderMark = "\xef\xbb\xbf"

// lines passes text through as long as its lines end.
type lines struct {
	from  io.Reader
	since int // bytes since the last end of a line
}

func (l *lines) Read(b []byte) (int, error) {
	n, err := l.from.Read(b[:min(len(b), maxLine)])
	if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
		l.since = n - i - 1
	} else {
		l.since += n
	}
	if l.since > maxLine {
		return 0, errLongLine
	}
	return n, err
}

// form is what a user's text file looks like.
type form int

const (
	unknownForm form = iota
	distributionForm
	flowForm
)

// formOf looks at the head of a text: a distribution's unit or form stands
// above its figures, a flow file's first line is names with commas.
func formOf(r *bufio.Reader) form {
	head, _ := r.Peek(maxLine) // what is shorter is all there is
	for line := range strings.Lines(strings.TrimPrefix(string(head), byteOrderMark)) {
		data, comment, _ := strings.Cut(line, "#")
		if data = strings.TrimSpace(data); data == "" {
			key, _, _ := strings.Cut(comment, ":")
			if key = strings.TrimSpace(key); key == "unit" || key == "form" {
				return distributionForm
			}
			continue
		}
		if strings.Contains(data, ",") && strings.ContainsFunc(data, unicode.IsLetter) {
			return flowForm
		}
		return unknownForm
	}
	return unknownForm
}
