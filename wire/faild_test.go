package wire

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFaildMACLayout(t *testing.T) {
	// Fields 1, 2, 3, 4 of ten bits: 0000000001 0000000010 0000000011 0000000100.
	f := Faild{Kind: FaildPass, Current: 0, Previous: [3]uint16{1, 2, 3}}
	mac, err := EncodeFaild(f)
	if want := (MAC{0x9a, 0x00, 0x40, 0x20, 0x0c, 0x04}); err != nil || mac != want {
		t.Fatalf("%x %v, want %x", mac, err, want)
	}
	if mac[0]&1 != 0 || mac[0]&2 == 0 {
		t.Fatalf("%x is not an individual, locally administered address", mac)
	}
	f = Faild{Kind: FaildCopy, Current: FaildMaxSlot, Previous: [3]uint16{FaildNone, FaildNone, FaildNone}}
	mac, err = EncodeFaild(f)
	if want := (MAC{0x9e, 0xff, 0xc0, 0, 0, 0}); err != nil || mac != want {
		t.Fatalf("%x %v, want %x", mac, err, want)
	}
}

func TestFaildMACRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.SliceOfNDistinct(rapid.Uint16Range(0, FaildMaxSlot), 1, 1+FaildChain, rapid.ID).Draw(t, "slots")
		f := Faild{Kind: rapid.SampledFrom([]FaildKind{FaildPass, FaildCopy, FaildBack}).Draw(t, "kind"), Current: slots[0], Previous: [3]uint16{FaildNone, FaildNone, FaildNone}}
		copy(f.Previous[:], slots[1:])
		mac, err := EncodeFaild(f)
		if err != nil {
			t.Fatal(err)
		}
		got, ok, err := DecodeFaild(mac)
		if !ok || err != nil || got != f {
			t.Fatalf("%+v became %+v %v %v", f, got, ok, err)
		}
		if f.Settled() != (len(slots) == 1) {
			t.Fatalf("settled: %v", f)
		}
		// The chain ends after as many steps as it names servers, and never
		// names one twice on the way.
		if f.Kind == FaildCopy {
			f.Kind = FaildPass
		}
		for i := 1; i < len(slots); i++ {
			next, ok := f.Next()
			if !ok || next.Current != slots[i] {
				t.Fatalf("step %d of %v: %+v %v", i, slots, next, ok)
			}
			f = next
		}
		if _, ok := f.Next(); ok {
			t.Fatalf("%+v has a next", f)
		}
	})
}

func TestFaildMACComesBack(t *testing.T) {
	const none = FaildNone
	f := Faild{Kind: FaildPass, Current: 7, Previous: [3]uint16{1, 2, 3}}
	for _, want := range []Faild{
		{FaildBack, 1, [3]uint16{2, 3, 7}},
		{FaildBack, 2, [3]uint16{3, 7, none}},
		{FaildBack, 3, [3]uint16{7, none, none}},
		{FaildBack, 7, [3]uint16{none, none, none}},
	} {
		next, ok := f.Back()
		if !ok {
			next, ok = f.Next()
		}
		if !ok || next != want {
			t.Fatalf("%+v leads to %+v %v, want %+v", f, next, ok, want)
		}
		if _, err := EncodeFaild(next); err != nil {
			t.Fatal(err)
		}
		f = next
	}
	if next, ok := f.Next(); ok {
		t.Fatalf("goes on to %+v", next)
	}
}

func TestFaildMACAnyBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var mac MAC
		copy(mac[:], rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "mac"))
		if rapid.Bool().Draw(t, "kind") {
			mac[0] = byte(FaildPass)
		}
		f, ok, err := DecodeFaild(mac)
		if ok != (mac[0] == 0x9a || mac[0] == 0x9e || mac[0] == 0x96) {
			t.Fatalf("%x: ok %v", mac, ok)
		}
		if !ok || err != nil {
			return
		}
		// All 48 bits carry meaning: what decodes encodes to the same.
		if back, err := EncodeFaild(f); err != nil || back != mac {
			t.Fatalf("%x became %x %v", mac, back, err)
		}
	})
}

func TestFaildMACRefuses(t *testing.T) {
	const none = FaildNone
	for name, f := range map[string]Faild{
		"no current": {Current: none, Previous: [3]uint16{none, none, none}},
		"too large":  {Current: FaildMaxSlot + 1, Previous: [3]uint16{none, none, none}},
		"a hole":     {Current: 1, Previous: [3]uint16{none, 2, none}},
		"itself":     {Current: 1, Previous: [3]uint16{1, none, none}},
		"a loop":     {Current: 1, Previous: [3]uint16{2, 3, 2}},
	} {
		f.Kind = FaildPass
		if mac, err := EncodeFaild(f); err == nil {
			t.Errorf("%s: encoded as %x", name, mac)
		}
		if mac, err := f.pack(); err == nil {
			if _, ok, err := DecodeFaild(mac); !ok || err == nil {
				t.Errorf("%s: %x decoded", name, mac)
			}
		}
	}
}
