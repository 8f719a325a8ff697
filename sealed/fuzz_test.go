package sealed

import (
	"bytes"
	"testing"
)

// FuzzOpen: what Open takes for whole was sealed; what it was is all of the file
// but its last line.
func FuzzOpen(f *testing.F) {
	for _, data := range []string{"", "{\"key\": 1}\n", "no line's end"} {
		f.Add([]byte(data))
		f.Add(Seal([]byte(data)))
	}
	f.Add([]byte("} sha256 00\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		data, sealed, err := Open(file)
		switch {
		case err != nil && (data != nil || !sealed):
			t.Errorf("%v, and %q", err, data)
		case err == nil && sealed && !bytes.Equal(bytes.TrimSuffix(Seal(data), []byte("\n")), bytes.TrimSuffix(file, []byte("\n"))):
			t.Errorf("%q is not what %q was made of", file, data)
		case !sealed && !bytes.Equal(data, file):
			t.Errorf("%q was read as %q", file, data)
		}
		// Whatever it is, sealed it comes back.
		whole := file
		if !bytes.HasSuffix(file, []byte("\n")) {
			whole = append(bytes.Clone(file), '\n')
		}
		if data, sealed, err := Open(Seal(file)); err != nil || !sealed || !bytes.Equal(data, whole) {
			t.Errorf("%q came back as %q, %v, %v", file, data, sealed, err)
		}
	})
}
