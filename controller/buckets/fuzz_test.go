package buckets

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
)

// checked is data with a checksum that is right, so that what is behind it is
// fuzzed and not the checksum.
func checked(magic string, body []byte) []byte {
	b := append([]byte(magic), body...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// fuzzed is a table and one that follows it.
func fuzzed(f *testing.F) (u, next *Table, body func(data []byte, err error) []byte) {
	servers := []Server{{1, 1}, {2, 2}, {3, 0}, {7, 1}}
	u = New(300, servers[:3])
	next, _ = u.Apply(u.Assign(servers, Options{Now: 9}), Options{Now: 9, ChainTime: 5})
	next.Since[4]++ // an other row, too
	return u, next, func(data []byte, err error) []byte {
		if err != nil {
			f.Fatal(err)
		}
		return data[len(tableMagic) : len(data)-4]
	}
}

// mustName: every refusal says whose it is.
func mustName(t *testing.T, err error) {
	if !strings.HasPrefix(err.Error(), "buckets: ") {
		t.Errorf("error %q", err)
	}
}

func FuzzTable(f *testing.F) {
	u, next, body := fuzzed(f)
	f.Add(body(u.MarshalBinary()))
	f.Add(body(next.MarshalBinary()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 4 && binary.BigEndian.Uint32(b) > 1<<12 && binary.BigEndian.Uint32(b) <= Max {
			return // right, and slow
		}
		var u, again Table
		if err := u.UnmarshalBinary(checked(tableMagic, b)); err != nil {
			mustName(t, err)
			return
		}
		data, err := u.MarshalBinary()
		if err == nil {
			err = again.UnmarshalBinary(data)
		}
		if err != nil || !again.Equal(&u) {
			t.Errorf("%v: %+v came back as %+v", err, u, again)
		}
	})
}

func FuzzDelta(f *testing.F) {
	u, next, body := fuzzed(f)
	f.Add(body(Delta(u, next)))
	moved := u.Clone()
	moved.Current[7], moved.Generation = 2, u.Generation+1 // one move: gaps instead of bits
	f.Add(body(Delta(u, moved)))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := u.Clone()
		next, err := u.ApplyDelta(checked(deltaMagic, b))
		if !u.Equal(before) {
			t.Fatal("the table changed under its delta")
		}
		if err != nil {
			mustName(t, err)
			return
		}
		delta, err := Delta(u, next)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := u.ApplyDelta(delta); err != nil || !again.Equal(next) {
			t.Errorf("%v: %+v came as %+v", err, next, again)
		}
	})
}
