package ctl

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// openAPI is what the test reads of the document that the controller serves.
type openAPI struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Role        string `json:"x-role"`
		RequestBody struct{ Content map[string]media }
		Responses   map[string]struct{ Content map[string]media }
	}
	Components struct{ Schemas map[string]schema }
}

type media struct{ Schema schema }

type schema struct {
	Ref        string `json:"$ref"`
	Type       any
	Properties map[string]schema
	Items      *schema
	Enum       []string
}

// TestOpenAPI goes by the document alone: curl carries out every operation that it has,
// with each field of the request filled in by its type, and what comes back is what it says,
// field by field.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	s := serveAPI(t)
	s.begin()
	curl := func(who string, args ...string) (body []byte, status string) {
		t.Helper()
		files := s.tls(who)
		out := filepath.Join(t.TempDir(), "body")
		args = append([]string{"-sS", "--max-time", "20", "--cacert", files.CA, "--cert", files.Cert, "--key", files.Key, "-o", out, "-w", "%{http_code}"}, args...)
		code, err := exec.Command("curl", args...).Output()
		if err != nil {
			t.Fatalf("curl %q: %v", args, err)
		}
		body, err = os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return body, string(code)
	}
	body, status := curl("vic", s.api+"/openapi.json")
	var document openAPI
	if err := json.Unmarshal(body, &document); err != nil || status != "200" {
		t.Fatalf("%s %v", status, err)
	}
	if len(document.Paths) != len(rules) {
		t.Errorf("%d operations, and %d rules", len(document.Paths), len(rules))
	}
	requests := map[string]string{"Plan": with(s.file("[s1]"), ""), "Apply": with(s.file("[s1]"), "")}
	for _, r := range rules {
		if r.request != "" {
			requests[r.method] = r.request
		}
	}
	for path, methods := range document.Paths {
		operation, ok := methods["post"]
		if !ok {
			t.Errorf("%s has no post", path)
			continue
		}
		for kind, m := range operation.RequestBody.Content {
			asked := document.Components.Schemas[strings.TrimPrefix(m.Schema.Ref, "#/components/schemas/")]
			for _, request := range []string{requests[operation.OperationID], filled(asked)} {
				data := []byte(request)
				if kind == "application/connect+json" {
					data = envelope(request)
				}
				file := filepath.Join(t.TempDir(), "request")
				if err := os.WriteFile(file, data, 0o600); err != nil {
					t.Fatal(err)
				}
				body, status := curl("ada", "-H", "Content-Type: "+kind, "--data-binary", "@"+file, s.api+path)
				response, known := operation.Responses[status]
				if !known {
					t.Errorf("%s %s: status %s is not in the document: %s", path, request, status, body)
					continue
				}
				if kind == "application/connect+json" {
					all := envelopes(t, body)
					if len(all) == 0 {
						t.Errorf("%s: no envelope", path)
						continue
					}
					body = []byte(all[0])
					if len(all) == 1 { // the end alone
						continue
					}
				} else if kind != "application/json" {
					t.Errorf("%s takes %s", path, kind)
				}
				of := response.Content[kind]
				if status != "200" {
					of = response.Content["application/json"]
				}
				var got any
				if err := json.Unmarshal(body, &got); err != nil {
					t.Errorf("%s: %v: %s", path, err, body)
					continue
				}
				document.conforms(t, path, of.Schema, got, status == "200")
			}
		}
	}
	if body, status := curl("vic", "-H", "Content-Type: application/json", "-d", "{}", s.api+"/fairlead.v1.Control/RotateKey"); status != fmt.Sprint(http.StatusForbidden) {
		t.Errorf("%s %s", status, body)
	}
}

// filled is a request with every field: what it says is mostly refused, but understood.
func filled(of schema) string {
	fields := map[string]any{}
	for name, f := range of.Properties {
		switch kind := strings.Trim(strings.TrimSuffix(fmt.Sprint(f.Type), " null]"), "["); {
		case name == "server" || name == "vip":
			fields[name] = "nosuch"
		case kind == "string":
			fields[name] = "text"
		case kind == "boolean":
			fields[name] = false
		case kind == "integer":
			fields[name] = 1
		case kind == "array":
			fields[name] = []string{}
		default: // a 64-bit number
			fields[name] = "1"
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// conforms: got has fields that the schema has, of their types, and no others; whole: all
// of them, as docs/api.md promises of what is no error.
func (d *openAPI) conforms(t *testing.T, at string, of schema, got any, whole bool) {
	t.Helper()
	if of.Ref != "" {
		of = d.Components.Schemas[strings.TrimPrefix(of.Ref, "#/components/schemas/")]
	}
	switch v := got.(type) {
	case map[string]any:
		if of.Type != "object" {
			t.Errorf("%s: an object, want %v", at, of.Type)
		}
		for name := range of.Properties {
			if _, there := v[name]; whole && !there {
				t.Errorf("%s lacks %s", at, name)
			}
		}
		for name, field := range v {
			next, known := of.Properties[name]
			if !known && at != "details" {
				t.Errorf("%s.%s is not in the document", at, name)
				continue
			}
			d.conforms(t, at+"."+name, next, field, whole)
		}
	case []any:
		if of.Type != "array" || of.Items == nil {
			t.Errorf("%s: a list, want %v", at, of.Type)
			return
		}
		for _, one := range v {
			d.conforms(t, at+"[]", *of.Items, one, whole)
		}
	case string:
		if of.Type != "string" {
			t.Errorf("%s: a text, want %v", at, of.Type)
		}
	case bool:
		if of.Type != "boolean" {
			t.Errorf("%s: a boolean, want %v", at, of.Type)
		}
	case float64:
		if of.Type != "integer" {
			t.Errorf("%s: a number, want %v", at, of.Type)
		}
	}
}
