package buckets

import (
	"encoding/json"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"encoding/binary"

	"pgregory.net/rapid"
)

func TestSnapshotRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := drawTable(t, rapid.IntRange(1, 60).Draw(t, "buckets"), 9, 1000)
		data, err := u.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var v Table
		if err := v.UnmarshalBinary(data); err != nil || !v.Equal(u) {
			t.Fatalf("%v: %+v came back as %+v", err, u, v)
		}
		cut := rapid.IntRange(0, len(data)-1).Draw(t, "cut")
		if err := new(Table).UnmarshalBinary(data[:cut]); err == nil {
			t.Fatalf("%d of %d octets are taken for a table", cut, len(data))
		}
		type holder struct{ Table *Table }
		text, err := json.Marshal(holder{u})
		if err != nil {
			t.Fatal(err)
		}
		var h holder
		if err := json.Unmarshal(text, &h); err != nil || !h.Table.Equal(u) {
			t.Fatalf("%v: %s came back as %+v", err, text, h.Table)
		}
	})
}

// drawNext is any table that may follow u: some rows moved as Apply moves
// them, some are otherwise.
func drawNext(t *rapid.T, u *Table, most int) *Table {
	o := Options{Now: 2000, ChainTime: rapid.Uint32Range(1, 2000).Draw(t, "chain time")}
	next, _ := u.Apply(u.Assign(drawServers(t, most, 3, "servers"), o), o)
	if rapid.Bool().Draw(t, "others") {
		odd := drawTable(t, u.Len(), most, 3000)
		for b := range odd.Current {
			if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
				next.set(b, odd.row(b))
			}
		}
	}
	next.Generation = u.Generation + rapid.Uint32Range(1, 1<<31-1).Draw(t, "generations")
	return next
}

func TestDeltaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := drawTable(t, rapid.IntRange(1, 60).Draw(t, "buckets"), 9, 1000)
		next := drawNext(t, u, 9)
		delta, err := Delta(u, next)
		if err != nil {
			t.Fatal(err)
		}
		got, err := u.ApplyDelta(delta)
		if err != nil || !got.Equal(next) {
			t.Fatalf("%v: from %+v to %+v came as %+v", err, u, next, got)
		}
		if _, err := next.ApplyDelta(delta); err == nil {
			t.Fatal("a delta is applied twice")
		}
	})
}

// TestDeltaCutOff: every truncation, and every single octet that is another,
// is refused.
func TestDeltaCutOff(t *testing.T) {
	servers := []Server{{1, 1}, {2, 2}, {3, 0}, {7, 1}}
	u := New(300, servers[:3])
	next, _ := u.Apply(u.Assign(servers, Options{Now: 9}), Options{Now: 9, ChainTime: 5})
	next.Since[4]++ // an other row, too
	for _, last := range []*Table{u, next} {
		var data []byte
		var err error
		read := func(b []byte) error { return new(Table).UnmarshalBinary(b) }
		if data, err = last.MarshalBinary(); last == next {
			data, err = Delta(u, next)
			read = func(b []byte) error { _, err := u.ApplyDelta(b); return err }
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := read(data); err != nil {
			t.Fatal(err)
		}
		for cut := range data {
			if err := read(data[:cut]); err == nil || !strings.Contains(err.Error(), "take it again") && !strings.Contains(err.Error(), "hand in") {
				t.Fatalf("%d of %d octets: %v", cut, len(data), err)
			}
		}
		for i := range data {
			other := slices.Clone(data)
			other[i] ^= 0x20
			if err := read(other); err == nil {
				t.Fatalf("octet %d of %d changed, and it is taken", i, len(data))
			}
		}
		if err := read(append(slices.Clone(data), 0)); err == nil {
			t.Fatal("an octet too many is taken")
		}
	}
}

// reseal gives data, which a test has changed, its checksum.
func reseal(data []byte) []byte {
	end := len(data) - 4
	return binary.BigEndian.AppendUint32(slices.Clone(data[:end]), crc32.Checksum(data[:end], castagnoli))
}

// TestHostileForms: whatever stands under a good checksum, nothing panics and
// what is taken is valid.
func TestHostileForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := drawTable(t, rapid.IntRange(1, 60).Draw(t, "buckets"), 9, 1000)
		next := drawNext(t, u, 9)
		delta, _ := Delta(u, next)
		whole, _ := next.MarshalBinary()
		for _, data := range [][]byte{delta, whole} {
			data = slices.Clone(data)
			for range rapid.IntRange(1, 4).Draw(t, "octets") {
				// Not the number of buckets' upper octets: it is refused, or
				// costs a table of eight million.
				if i := rapid.IntRange(6, len(data)-1).Draw(t, "at"); i < len(data) {
					data[i] = rapid.Byte().Draw(t, "octet")
				}
			}
			if cut := rapid.IntRange(0, 3).Draw(t, "less"); len(data)-cut > 16 {
				data = data[:len(data)-cut]
			}
			data = reseal(data)
			var v Table
			if err := v.UnmarshalBinary(data); err == nil && v.Validate() != nil {
				t.Fatalf("an invalid table is taken: %v", v.Validate())
			}
			if got, err := u.ApplyDelta(data); err == nil && got.Validate() != nil {
				t.Fatalf("an invalid delta is taken: %v", got.Validate())
			}
		}
	})
}

func TestDeltaRefusals(t *testing.T) {
	u := New(8, []Server{{0, 1}, {1, 1}})
	u.Generation = 7
	next, _ := u.Apply([]Move{{0, 1}}, Options{Now: 5})
	delta, err := Delta(u, next)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Table, []byte){
		"from generation 7, the table has 6":           func(u *Table, _ []byte) { u.Generation = 6 },
		"generation 6: runs backwards from 7":          func(_ *Table, d []byte) { d[15] = 6 },
		"generation 7: runs backwards from 7":          func(_ *Table, d []byte) { d[15] = 7 },
		"generation 2147483655: runs backwards from 7": func(_ *Table, d []byte) { d[12] = 0x80; d[15] = 7 },
		"of 8 buckets, the table has 9":                func(u *Table, _ []byte) { *u = *New(9, []Server{{0, 1}}); u.Generation = 7 },
		"bucket 0 moves to server 0, which has it":     func(_ *Table, d []byte) { d[len(d)-6] = 0 },
		"bucket 0 moves to server 65535, which has it": func(_ *Table, d []byte) { d[len(d)-6], d[len(d)-7] = 255, 255 },
	} {
		v, d := u.Clone(), slices.Clone(delta)
		change(v, d)
		if _, err := v.ApplyDelta(reseal(d)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
	if _, err := Delta(next, u); err == nil || !strings.Contains(err.Error(), "generation 7: runs backwards, 8 is in force") {
		t.Errorf("a delta backwards: %v", err)
	}
	if _, err := Delta(u, New(9, nil)); err == nil || !strings.Contains(err.Error(), "9 buckets, was 8") {
		t.Errorf("a delta to another size: %v", err)
	}
	same := next.Clone()
	same.Current[3] = 1
	if err := next.Follows(same); err == nil || !strings.Contains(err.Error(), "generation 8: is in force already") {
		t.Errorf("another table of one generation: %v", err)
	}
}

func TestGenerationsGoRound(t *testing.T) {
	if !Newer(0, ^uint32(0)) || !Newer(5, ^uint32(0)-5) || Newer(3, 3) || Newer(^uint32(0), 1) {
		t.Fatal("serial numbers do not go round")
	}
	u := New(4, []Server{{0, 1}, {1, 1}})
	u.Generation = ^uint32(0)
	next, _ := u.Apply([]Move{{0, 1}}, Options{Now: 5})
	if delta, err := Delta(u, next); err != nil {
		t.Fatal(err)
	} else if got, err := u.ApplyDelta(delta); err != nil || got.Generation != 0 {
		t.Fatal(got, err)
	}
}

func TestValidate(t *testing.T) {
	good := func() *Table {
		u := New(3, []Server{{0, 1}})
		u.Since[1], u.Previous[1] = 5, [Chain]uint16{1, 2, None}
		return u
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Table){
		"current: 0 buckets; a table has 1 to":                  func(u *Table) { *u = Table{} },
		"since: 2 buckets, and current has 3":                   func(u *Table) { u.Since = u.Since[:2] },
		"previous: 2 buckets, and current has 3":                func(u *Table) { u.Previous = u.Previous[:2] },
		"bucket 1: previous[0] 0: is its current server":        func(u *Table) { u.Previous[1][0] = 0 },
		"bucket 1: previous[1] 1: stands there twice":           func(u *Table) { u.Previous[1][1] = 1 },
		"bucket 1: previous[1] 2: stands behind an empty place": func(u *Table) { u.Previous[1][0] = None },
		"bucket 1: current 65535: none, but it has previous":    func(u *Table) { u.Current[1] = None },
		"bucket 1: since 0: it never moved, but":                func(u *Table) { u.Since[1] = 0 },
	} {
		u := good()
		change(u)
		if err := u.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if err := good().ValidateServers([]Server{{0, 1}, {1, 0}, {2, 0}}); err != nil {
		t.Error(err)
	}
	if err := good().ValidateServers([]Server{{0, 1}, {2, 0}}); err == nil || !strings.Contains(err.Error(), "bucket 1: previous[0] 1: no server has this number") {
		t.Error(err)
	}
	if err := good().ValidateServers([]Server{{1, 1}, {2, 0}}); err == nil || !strings.Contains(err.Error(), "bucket 0: current 0: no server has this number") {
		t.Error(err)
	}
}
