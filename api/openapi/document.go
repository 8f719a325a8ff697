package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fairlead/fairlead/api/access"
)

type object = map[string]any

// Document describes a service as connect's protocol has it over HTTP, in OpenAPI 3.1:
// an operation a method, a schema a message. Comments of the schema stand where the
// descriptors have them, which those in Go's generated code have not.
func Document(service protoreflect.ServiceDescriptor) ([]byte, error) {
	d := document{schemas: object{}}
	paths := object{}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		d.message(m.Input(), true)
		d.message(m.Output(), false)
		procedure := fmt.Sprintf("/%s/%s", service.FullName(), m.Name())
		paths[procedure] = object{"post": operation(m, procedure)}
	}
	if d.err != nil {
		return nil, d.err
	}
	d.schemas["Error"] = object{
		"type": "object", "description": "Why a call was not answered: a code of connect's, and what people should know.",
		"required":   []string{"code"},
		"properties": object{"code": object{"type": "string"}, "message": object{"type": "string"}},
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	err := e.Encode(object{
		"openapi": "3.1.0",
		"info":    object{"title": string(service.FullName()), "version": "1", "description": comment(service.ParentFile().SourceLocations().ByPath(protoreflect.SourcePath{12}))},
		"paths":   paths,
		"components": object{
			"schemas":         d.schemas,
			"securitySchemes": object{"certificate": object{"type": "mutualTLS", "description": "A certificate of the deployment's authority, which says the caller's role. At a unix socket there is none: the kernel says who calls."}},
		},
		"security": []object{{"certificate": []string{}}},
	})
	return out.Bytes(), err
}

// statuses are what connect makes of the codes that the schema promises.
var statuses = map[string]string{
	"400": "The request cannot be right (invalid_argument), or is refused as things stand (failed_precondition).",
	"403": "The caller's role is not enough (permission_denied).",
	"404": "There is no such VIP, server or version (not_found).",
	"415": "The content is not of the type that stands here, or the call is no POST.",
	"409": "The deployment changed meanwhile (aborted).",
	"429": "Too many calls are under way (resource_exhausted).",
	"503": "The controller is starting or stopping (unavailable).",
}

func operation(m protoreflect.MethodDescriptor, procedure string) object {
	kind, answer := "application/json", "The answer."
	if m.IsStreamingServer() {
		kind = "application/connect+json"
		answer = "A stream of these, each in an envelope of connect's: an octet of flags, four of length, the JSON. The last has flag 2, and says how the stream ended. The request is one such envelope."
	}
	content := func(of protoreflect.MessageDescriptor) object {
		return object{kind: object{"schema": reference(of)}}
	}
	responses := object{"200": object{"description": answer, "content": content(m.Output())}}
	for status, text := range statuses {
		if status == "415" { // connect answers it with nothing
			responses[status] = object{"description": text}
			continue
		}
		responses[status] = object{"description": text, "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/Error"}}}}
	}
	return object{
		"operationId": string(m.Name()),
		"description": comment(m.ParentFile().SourceLocations().ByDescriptor(m)),
		"x-role":      access.Needed(procedure).String(),
		"requestBody": object{"required": true, "content": content(m.Input())},
		"responses":   responses,
	}
}

func reference(m protoreflect.MessageDescriptor) object {
	return object{"$ref": "#/components/schemas/" + string(m.Name())}
}

type document struct {
	schemas object
	err     error
}

// message adds m and what it is made of; asked: it comes in a request.
func (d *document) message(m protoreflect.MessageDescriptor, asked bool) {
	if _, done := d.schemas[string(m.Name())]; done {
		return
	}
	properties := object{}
	schema := object{"type": "object", "properties": properties}
	if asked {
		schema["additionalProperties"] = false // what nobody knows is refused
	}
	describe(schema, m)
	if names := required[m.Name()]; asked && names != nil {
		schema["required"] = names
	}
	d.schemas[string(m.Name())] = schema
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		one := d.field(f, asked)
		if f.IsList() {
			one = object{"type": "array", "items": one}
		}
		if asked {
			bounded(one, f, m)
		}
		describe(one, f)
		properties[f.JSONName()] = one
	}
}

func (d *document) field(f protoreflect.FieldDescriptor, asked bool) object {
	number := func(format string) object {
		if asked {
			return object{"type": []string{"string", "integer"}, "format": format}
		}
		return object{"type": "string", "format": format}
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		return object{"type": "string"}
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Uint32Kind:
		return object{"type": "integer", "minimum": 0, "maximum": 1<<32 - 1}
	case protoreflect.Int64Kind:
		return number("int64")
	case protoreflect.Uint64Kind:
		return number("uint64")
	case protoreflect.EnumKind:
		var names []string
		for i := range f.Enum().Values().Len() {
			names = append(names, string(f.Enum().Values().Get(i).Name()))
		}
		return object{"type": "string", "enum": names}
	case protoreflect.MessageKind:
		d.message(f.Message(), asked)
		return reference(f.Message())
	}
	d.err = fmt.Errorf("%s: no schema is known for a field of kind %s; add one here", f.FullName(), f.Kind())
	return object{}
}

// required are fields without which a request cannot be right. (Protocol buffers have no
// word for it.) DescribeRequest takes one of two, which stands in its description.
var required = map[protoreflect.Name][]string{
	"AddServerRequest": {"server"}, "DrainServerRequest": {"server"}, "UndrainServerRequest": {"server"}, "RemoveServerRequest": {"server"},
	"SetWeightRequest": {"server", "weight"}, "PlanRequest": {"text"}, "ApplyRequest": {"text"}, "RollbackRequest": {"version"},
}

// most are numbers' bounds.
var most = map[protoreflect.FullName]int{
	"fairlead.v1.GetHistoryRequest.last": 1000, "fairlead.v1.AddServerRequest.weight": 1000, "fairlead.v1.SetWeightRequest.weight": 1000,
}

// bounded says of m's field f what values it takes; null is none, as it were not there.
func bounded(schema object, f protoreflect.FieldDescriptor, m protoreflect.MessageDescriptor) {
	needed := slices.Contains(required[m.Name()], f.JSONName())
	if n, ok := most[f.FullName()]; ok {
		schema["maximum"] = n
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		if needed {
			schema["minLength"] = 1
		}
	case protoreflect.Uint32Kind:
		if needed {
			schema["minimum"] = 1
		}
	}
	if kind, ok := schema["type"].(string); ok && !needed {
		schema["type"] = []string{kind, "null"}
	} else if kinds, ok := schema["type"].([]string); ok && !needed {
		schema["type"] = append(slices.Clone(kinds), "null")
	}
}

// describe adds the comment of the schema, if there is one.
func describe(schema object, of protoreflect.Descriptor) {
	if text := comment(of.ParentFile().SourceLocations().ByDescriptor(of)); text != "" {
		schema["description"] = text
	}
}

func comment(at protoreflect.SourceLocation) string {
	text := at.LeadingComments
	for _, more := range at.LeadingDetachedComments {
		text = more + text
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
