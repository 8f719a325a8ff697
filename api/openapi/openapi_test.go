package openapi

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// TestDocumentIsTheSchema: the committed document is what the schema makes, but for
// comments, which descriptors in Go's generated code have not (`make proto` writes it).
func TestDocumentIsTheSchema(t *testing.T) {
	made, err := Document(fairleadv1.File_control_proto.Services().ByName("Control"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(made, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(Control, &got); err != nil {
		t.Fatal(err)
	}
	described := 0
	var bare func(any) any
	bare = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			if text, ok := v["description"].(string); ok { // not a field of that name
				if text != "" {
					described++
				}
				delete(v, "description")
			}
			for k := range v {
				v[k] = bare(v[k])
			}
		case []any:
			for i := range v {
				v[i] = bare(v[i])
			}
		}
		return v
	}
	if !reflect.DeepEqual(bare(got), bare(want)) {
		t.Error("control.json is not of this schema: run `make proto`")
	}
	if described < 100 {
		t.Errorf("%d descriptions: was it made without comments?", described)
	}
}
