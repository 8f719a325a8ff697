package controller

import (
	"bytes"
	"os"
	"testing"
)

// What an older build encoded, this one encodes alike: digests of it are pinned and
// held against other builds' (Encode). The file is what one wrote and is never made
// anew: a test that fails here says that fleets could not be upgraded.
func TestEncodingStays(t *testing.T) {
	const file = "testdata/encoded.json"
	older, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a, err := Decode(older)
	if err != nil {
		t.Fatal(err)
	}
	if now := a.Encode(); !bytes.Equal(now, older) {
		is, was := bytes.Split(now, []byte("\n")), bytes.Split(older, []byte("\n"))
		for i := range min(len(is), len(was)) {
			if !bytes.Equal(is[i], was[i]) {
				t.Fatalf("%s:%d: is encoded as %q, was %q: see Encode", file, i+1, is[i], was[i])
			}
		}
		t.Fatalf("%d lines, were %d: see Encode", len(is), len(was))
	}
}
