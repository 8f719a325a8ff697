package yamlfile

import (
	"reflect"
	"strings"
	"sync"
)

// places is where the fields of a struct are, by key. To find them by reflection for each
// key of a file would take longer than all the rest of reading it.
var places sync.Map // of map[string][]int, by reflect.Type

func placesOf(t reflect.Type) map[string][]int {
	if known, ok := places.Load(t); ok {
		return known.(map[string][]int)
	}
	at := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		key := keyOf(f)
		if _, taken := at[key]; key != "" && !taken {
			at[key] = f.Index
		}
	}
	places.Store(t, at)
	return at
}

func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	at, ok := placesOf(v.Type())[key]
	if !ok {
		return reflect.Value{}, false
	}
	return v.FieldByIndex(at), true
}

// keyOf is the field's key, without options that are for writers; "" if it has
// none.
func keyOf(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return key
}

// keys is what a mapping of type t may hold, in the order of the struct.
func keys(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if k := keyOf(f); k != "" {
			names = append(names, k)
		}
	}
	return names
}
