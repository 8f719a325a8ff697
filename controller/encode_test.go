package controller

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller/buckets"
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

// A setting that encoded does not name is lost on its way to the daemons.
func TestEveryFieldIsEncoded(t *testing.T) {
	var v VIP
	fields := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[VIP]()) {
		if f.Anonymous {
			continue // its fields are visible themselves
		}
		fields++
		if e, there := encoded.FieldByName(f.Name); !there || e.Tag != f.Tag {
			t.Errorf("%s is not encoded, or under another key (%q): add it to encoded", f.Name, e.Tag)
		}
		fill(t, reflect.ValueOf(&v).Elem().FieldByIndex(f.Index))
	}
	if fields != encoded.NumField() {
		t.Errorf("%d fields, %d are encoded", fields, encoded.NumField())
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back VIP
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[VIP]()) {
		was, is := reflect.ValueOf(v).FieldByIndex(f.Index), reflect.ValueOf(back).FieldByIndex(f.Index)
		if !f.Anonymous && !reflect.DeepEqual(was.Interface(), is.Interface()) {
			t.Errorf("%s is %+v once encoded and decoded, was %+v", f.Name, is, was)
		}
	}
}

// fill gives v something that is not zero, and all that is in it.
func fill(t *testing.T, v reflect.Value) {
	switch v.Interface().(type) {
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case *buckets.Table:
		v.Set(reflect.ValueOf(buckets.New(8, []buckets.Server{{Number: 1, Weight: 1}})))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("some")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	default:
		t.Fatalf("a %v: teach this test to make one", v.Type())
	}
}
