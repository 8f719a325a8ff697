package sealed

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Whatever one character of a sealed file becomes, what was sealed is not taken
// for something else: either the checksum says so, or the file is not one whole
// JSON text, or only the line itself was hit.
func TestOneCharacter(t *testing.T) {
	data := []byte("{\n  \"key\": \"c2VjcmV0\",\n  \"list\": [1, 2]\n}\n")
	file := Seal(data)
	for at := range file {
		for _, c := range []byte("x0 }]\n\"\x00") {
			damaged := bytes.Clone(file)
			if damaged[at] == c {
				continue
			}
			damaged[at] = c
			got, _, err := Open(damaged)
			if err == nil && json.Valid(got) && !bytes.Equal(got, data) {
				t.Fatalf("character %d as %q: taken for %q", at, c, got)
			}
		}
	}
	for end := range file {
		if got, _, err := Open(file[:end]); err == nil && json.Valid(got) && !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(data)) {
			t.Fatalf("cut off at %d: taken for %q", end, got)
		}
	}
}

// What was sealed comes back; an older build's file is read as it is, and an
// older build reads ours.
func TestOlderBuilds(t *testing.T) {
	data := []byte("{\"key\": 1}\n")
	if got, sealed, err := Open(Seal(data)); err != nil || !sealed || !bytes.Equal(got, data) {
		t.Errorf("sealed: %q, %v, %v", got, sealed, err)
	}
	if got, sealed, err := Open(data); err != nil || sealed || !bytes.Equal(got, data) {
		t.Errorf("an older build's: %q, %v, %v", got, sealed, err)
	}
	d := json.NewDecoder(bytes.NewReader(Seal(data)))
	var v map[string]int
	if err := d.Decode(&v); err != nil || d.More() || v["key"] != 1 {
		t.Errorf("as builds before it read assignments: %v, %v", v, err)
	}
}
