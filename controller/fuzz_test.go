package controller

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// FuzzDecode: an assignment from a disk or a peer is refused in words that begin
// with what it is, or stays the same bytes through every build.
func FuzzDecode(f *testing.F) {
	whole, err := os.ReadFile("testdata/encoded.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	a, err := Decode(whole)
	if err != nil {
		f.Fatal(err)
	}
	for i := range a.VIPs {
		one := a.Clone()
		one.VIPs = one.VIPs[i : i+1]
		f.Add(one.Encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Decode(data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "assignment") {
				t.Errorf("error %q", err)
			}
			return
		}
		encoded := a.Encode()
		b, err := Decode(encoded)
		if err != nil {
			t.Fatalf("%v in %s", err, encoded)
		}
		if again := b.Encode(); !bytes.Equal(again, encoded) {
			t.Errorf("%s, then %s", encoded, again)
		}
		if clone := a.Clone(); clone.Digest() != a.Digest() {
			t.Error("a clone has another digest")
		}
		if err := Mixable(a, b); err != nil {
			t.Errorf("not mixable with itself: %v", err)
		}
	})
}
