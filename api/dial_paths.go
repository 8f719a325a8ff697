package api

import (
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// DialPaths makes a client of the path service at endpoint: as Dial, or
// http://address:port with an address of the loopback.
func DialPaths(endpoint string, t config.TLS) (fairleadv1connect.PathsClient, error) {
	if address, ok := strings.CutPrefix(endpoint, "http://"); ok {
		if ap, err := netip.ParseAddrPort(strings.TrimSuffix(address, "/")); err == nil && ap.Addr().IsLoopback() {
			return fairleadv1connect.NewPathsClient(http.DefaultClient, endpoint, connect.WithReadMaxBytes(MaxMessage)), nil
		}
	}
	client, base, err := dial(endpoint, t)
	if err != nil {
		return nil, err
	}
	return fairleadv1connect.NewPathsClient(client, base, connect.WithReadMaxBytes(MaxMessage)), nil
}
