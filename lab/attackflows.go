package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/attack"
	"github.com/fairlead/fairlead/lab/netspace"
	"github.com/fairlead/fairlead/wire"
)

// observe makes every connection speak, and learns of each what its client
// sent last.
func (r *runner) observe(ctx context.Context) ([]attack.Flow, error) {
	socket, err := r.listenAtClient()
	if err != nil {
		return nil, fmt.Errorf("watch the client's packets: %w", err)
	}
	defer unix.Close(socket)
	if err := r.round(ctx); err != nil {
		return nil, err
	}
	type tuple struct{ client, vip netip.AddrPort }
	flows := map[tuple]attack.Flow{}
	ended := map[tuple]bool{}
	frame := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(socket, frame, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("watch the client's packets: %w", err)
		}
		if link, ok := from.(*unix.SockaddrLinklayer); !ok || link.Pkttype != unix.PACKET_OUTGOING {
			continue
		}
		p := wire.Parse(frame[:n])
		if p.Protocol != wire.ProtoTCP || p.SrcPort == 0 || !p.Is(wire.ACK) {
			continue
		}
		t := tuple{p.Source(), p.Destination()}
		ended[t] = p.Flags&(wire.FIN|wire.RST) != 0
		f := attack.Flow{Client: t.client, VIP: t.vip, Ack: p.Ack}
		if ts, ok, _ := wire.FindTimestamp(p.Options); ok {
			f.Stamped, f.TSVal, f.TSEcr = true, ts.Val, ts.Ecr
		}
		flows[t] = f
	}
	maps.DeleteFunc(flows, func(t tuple, _ attack.Flow) bool { return ended[t] })
	return slices.SortedFunc(maps.Values(flows), func(a, b attack.Flow) int {
		return cmp.Or(a.VIP.Compare(b.VIP), a.Client.Compare(b.Client))
	}), nil
}

// listenAtClient opens a socket that keeps what the client sends and gets.
func (r *runner) listenAtClient() (socket int, err error) {
	err = netspace.In(r.lab.namespace("client"), func() error {
		device, err := net.InterfaceByName(uplink)
		if err != nil {
			return err
		}
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL)
		err = errors.Join(unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8*resetBuffer),
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: device.Index}))
		if err != nil {
			unix.Close(socket)
		}
		return err
	})
	return socket, err
}
