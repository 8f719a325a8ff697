package daemon

import (
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// WholeJSON has an API speak JSON made for scripts: every field is there, zeros
// included, and a request's field that nobody knows is an error instead of being
// overlooked.
func WholeJSON() connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithCodec(wholeJSON{"json"}), connect.WithCodec(wholeJSON{"json; charset=utf-8"}))
}

type wholeJSON struct{ name string }

// Name implements connect.Codec.
func (c wholeJSON) Name() string { return c.name }

// Marshal implements connect.Codec.
func (wholeJSON) Marshal(m any) ([]byte, error) {
	message, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", m)
	}
	return protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(message)
}

// Unmarshal implements connect.Codec.
func (wholeJSON) Unmarshal(data []byte, m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is no message", m)
	}
	if len(data) == 0 {
		return fmt.Errorf("the request is empty: send a JSON object, {} at least")
	}
	return protojson.Unmarshal(data, message)
}
