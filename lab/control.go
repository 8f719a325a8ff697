package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/lab/netspace"
)

// changeWait bounds one change by the API.
const changeWait = 30 * time.Second

// api is a client of a machine's daemon by its socket.
func (l *Lab) api(machine string) fairleadv1connect.FairleadClient {
	if l.Exposed {
		return l.exposedAPI(machine)
	}
	return fairleadv1connect.NewFairleadClient(bySocket(l.socket(machine)), "http://fairlead")
}

// daemonStatus asks a machine's daemon how it is.
func (l *Lab) daemonStatus(ctx context.Context, machine string) (*fairleadv1.GetStatusResponse, error) {
	return l.statusWithin(ctx, machine, 5*time.Second)
}

func (l *Lab) statusWithin(ctx context.Context, machine string, patience time.Duration) (*fairleadv1.GetStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := l.api(machine).GetStatus(ctx, connect.NewRequest(&fairleadv1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// change asks the controllers, the next where one is not there.
func (l *Lab) change(ctx context.Context, f func(context.Context, fairleadv1connect.ControlClient) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	for _, c := range l.controllers() {
		client := fairleadv1connect.NewControlClient(bySocket(l.controlSocket(c.name)), "http://fairlead")
		if err = f(ctx, client); err == nil || connect.CodeOf(err) != connect.CodeUnavailable {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("ask a controller: %w", err)
	}
	return nil
}

// bySocket is a client for whoever answers at a socket.
func bySocket(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // the daemon may be killed between two calls
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

// tellHealth makes a machine's server fail its health checks, or answer them.
func (l *Lab) tellHealth(ctx context.Context, machine string, fails bool) error {
	return netspace.In(l.namespace(machine), func() error {
		// One that stays on this thread: a transport would dial on another.
		conn, err := (&net.Dialer{Timeout: readyWait}).DialContext(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", httpPort))
		if err != nil {
			return fmt.Errorf("tell the server of %s: %w", machine, err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(answerTimeout))
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, fmt.Sprintf("http://lab%s?fail=%v", healthPath, fails), nil)
		if err != nil {
			return err
		}
		if err := r.Write(conn); err != nil {
			return fmt.Errorf("tell the server of %s: %w", machine, err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), r)
		if err != nil {
			return fmt.Errorf("tell the server of %s: %w", machine, err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("tell the server of %s: %s", machine, answer.Status)
		}
		return nil
	})
}

// allHave tells whether a balancer or switch sees the same health of the machines in
// every VIP that checks and has them.
func (l *Lab) allHave(s *fairleadv1.GetStatusResponse, machines []string, want fairleadv1.Health) bool {
	if s.Switch != nil {
		return l.hostsAre(s.Switch.Hosts, machines, want == fairleadv1.Health_HEALTH_UP)
	}
	for _, v := range s.Vips {
		for _, slot := range v.Slots {
			if slices.Contains(machines, l.machineName(slot.Server)) && slot.State == fairleadv1.SlotState_SLOT_STATE_ACTIVE &&
				slot.Health != want && slot.Health != fairleadv1.Health_HEALTH_UNSPECIFIED {
				return false
			}
		}
	}
	return true
}
