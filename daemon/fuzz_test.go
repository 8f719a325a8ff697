package daemon

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/api/fairleadv1"
)

// FuzzWholeJSON: a request is refused, or is the same message written anew.
func FuzzWholeJSON(f *testing.F) {
	for _, text := range []string{"", "{}", `{"vip": "web", "server": "web1", "weight": 3}`, `{"keys": ["18446744073709551615"], "meta": [49151]}`,
		`{"assignment": "e30=", "expectedVersion": "7"}`, `{"from": "a", "to": "b", "rules": {}}`, `{"nobody": 1}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range []proto.Message{&fairleadv1.GetAssignmentResponse{}, &fairleadv1.AddServerRequest{}, &fairleadv1.SetWeightRequest{},
			&fairleadv1.ShareFlowsRequest{}, &fairleadv1.ListPathsRequest{}, &fairleadv1.PlaceFlowRequest{}, &fairleadv1.GetStatusResponse{}} {
			codec := wholeJSON{"json"}
			if codec.Unmarshal(data, m) != nil {
				continue
			}
			text, err := codec.Marshal(m)
			again := m.ProtoReflect().New().Interface()
			if err == nil {
				err = codec.Unmarshal(text, again)
			}
			if err != nil || !proto.Equal(m, again) {
				t.Errorf("%T: %s came back as %v (%v)", m, text, again, err)
			}
		}
	})
}
