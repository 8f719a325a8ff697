package api

import (
	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// DialControl makes a client of the controller whose API is at endpoint: as Dial.
func DialControl(endpoint string, t config.TLS) (fairleadv1connect.ControlClient, error) {
	client, base, err := dial(endpoint, t)
	if err != nil {
		return nil, err
	}
	return fairleadv1connect.NewControlClient(client, base, connect.WithReadMaxBytes(MaxMessage)), nil
}
