// Package sealed has files say themselves whether they are whole: the last line
// of a sealed file is the checksum of all before it.
//
//	{"version": 12, …}
//	} sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//
// It holds against damage, of a disk or by a hand that edits, and against nobody
// who wants to deceive: who may write the file may write the line. It begins with
// a bracket so that builds which knew no checksum, and whose decoder of
// assignments stops there, read those all the same.
package sealed

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// ErrDamaged: the file is not what was written.
var ErrDamaged = errors.New("its checksum is wrong")

const mark, algorithm = "} ", "sha256 "

// Seal is data with its last line. Where data ends amid a line, that is ended.
func Seal(data []byte) []byte {
	file := bytes.Clone(data)
	if !bytes.HasSuffix(file, []byte("\n")) {
		file = append(file, '\n')
	}
	sum := sha256.Sum256(file)
	file = append(file, mark+algorithm...)
	return append(hex.AppendEncode(file, sum[:]), '\n')
}

// Open is what was sealed. A file without the line, of a build that knew none, is
// returned as it is, with sealed false.
func Open(file []byte) (data []byte, sealed bool, err error) {
	text := bytes.TrimSuffix(file, []byte("\n"))
	start := bytes.LastIndexByte(text, '\n') + 1
	if !bytes.HasPrefix(text[start:], []byte(mark)) {
		return file, false, nil
	}
	if data = file[:start]; !bytes.Equal(bytes.TrimSuffix(Seal(data), []byte("\n")), text) {
		return nil, true, ErrDamaged
	}
	return data, true, nil
}
