package main

import (
	"encoding/hex"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// plainMessage is a message as maps and lists, every field present, so that
// scripts need not tell a zero from a field that is missing. protojson would
// write 64-bit numbers as strings.
func plainMessage(m protoreflect.Message) map[string]any {
	out := map[string]any{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		switch {
		case f.IsList():
			list := m.Get(f).List()
			values := make([]any, list.Len())
			for j := range values {
				values[j] = plainValue(f, list.Get(j))
			}
			out[name] = values
		case f.Message() != nil && !m.Has(f):
			out[name] = nil
		default:
			out[name] = plainValue(f, m.Get(f))
		}
	}
	return out
}

func plainValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return plainMessage(v.Message())
	case protoreflect.EnumKind:
		return enumWord(f.Enum(), v.Enum())
	case protoreflect.BytesKind:
		return hex.EncodeToString(v.Bytes())
	}
	return v.Interface()
}

// enumWord is SLOT_STATE_ACTIVE as "active"; the zero value as "".
func enumWord(d protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	value := d.Values().ByNumber(n)
	if value == nil || n == 0 {
		return ""
	}
	// The prefix is that of the zero value: SLOT_STATE_UNSPECIFIED.
	prefix := strings.TrimSuffix(string(d.Values().ByNumber(0).Name()), "UNSPECIFIED")
	return strings.ToLower(strings.TrimPrefix(string(value.Name()), prefix))
}
