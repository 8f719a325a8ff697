package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
)

// changeWait bounds one change by the API: the daemon hands it to all others.
const changeWait = 30 * time.Second

// api is a client of a machine's daemon by its socket.
func (l *Lab) api(machine string) fairleadv1connect.FairleadClient {
	socket := l.socket(machine)
	transport := &http.Transport{
		DisableKeepAlives: true, // the daemon may be killed between two calls
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	return fairleadv1connect.NewFairleadClient(&http.Client{Transport: transport}, "http://fairlead")
}

// daemonStatus asks a machine's daemon how it is.
func (l *Lab) daemonStatus(ctx context.Context, machine string) (*fairleadv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := l.api(machine).GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// change asks one of the living balancers' daemons, which hands the change
// to all daemons.
func (l *Lab) change(ctx context.Context, asked string, f func(context.Context, fairleadv1connect.FairleadClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	if err := f(ctx, l.api(asked)); err != nil {
		return fmt.Errorf("ask %s: %w", asked, err)
	}
	return nil
}
