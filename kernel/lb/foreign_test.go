package lb

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// Fields are found by name wherever they stand and however wide they are.
func TestFieldsByName(t *testing.T) {
	u16, u64 := &btf.Int{Size: 2}, &btf.Int{Size: 8}
	f := fields{24, map[string]btf.Member{
		"packets": {Name: "packets", Type: u64, Offset: 64},
		"slots":   {Name: "slots", Type: u16, Offset: 16},
		"beyond":  {Name: "beyond", Type: u64, Offset: 17 * 8},
	}}
	b := make([]byte, 24)
	b[2], b[3], b[8], b[15] = 0x34, 0x12, 7, 1
	for name, want := range map[string]uint64{"slots": 0x1234, "packets": 1<<56 | 7, "beyond": 0, "nosuch": 0} {
		if got := f.number(b, name); got != want {
			t.Errorf("%s = %#x, want %#x", name, got, want)
		}
	}
}
