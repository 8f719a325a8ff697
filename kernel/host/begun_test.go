package host

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/controller"
	"github.com/fairlead/fairlead/kernel/host/hosttest"
	choices "github.com/fairlead/fairlead/vip"
	"github.com/fairlead/fairlead/wire"
)

// A handshake that began before the VIP came to cookies, or before it left them, ends:
// the client echoes what it was sent, which of seats' cookies one in some hundred looks
// like by chance.
func TestHandshakesBegunBefore(t *testing.T) {
	t.Parallel()
	const handshakes = 800
	ghost := netip.MustParseAddr("10.99.0.77")
	for _, timestamps := range []string{"1", "2"} {
		for _, toCookies := range []bool{true, false} {
			t.Run(fmt.Sprintf("timestamps%s-to-cookies-%v", timestamps, toCookies), func(t *testing.T) {
				as := assignment(choices.L2, hosttest.Server4, hosttest.Server4, 15)
				as.VIPs = as.VIPs[:1]
				v := &as.VIPs[0]
				v.Scheme, v.SeatBits = choices.CheetahStateful, 8
				with, without := v.Settings, v.Settings
				without.Scheme, without.Policy, without.SeatBits = choices.JET, choices.ByTheHash, 0
				from, to, stage := without, with, controller.StageCollect
				if !toCookies {
					from, to, stage = with, without, controller.StageEnding
				}
				v.Settings = from
				r := newRig(t, timestamps, as)
				// Whom nobody accepts takes no file of this process.
				var l net.Listener
				if err := r.Server.Do(func() (err error) {
					l, err = net.Listen("tcp", netip.AddrPortFrom(hosttest.VIP4, 80).String())
					return err
				}); err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				if err := r.Server.Neighbour(hosttest.ServerInterface, ghost); err != nil {
					t.Fatal(err)
				}
				service := netip.AddrPortFrom(hosttest.VIP4, 80)
				answers := r.watchFrames(func(p *wire.Parsed) bool {
					return p.Protocol == wire.ProtoTCP && p.Dst == ghost && p.Is(wire.SYN|wire.ACK)
				})
				answered := map[uint16]*wire.Parsed{}
				var frames [][]byte
				frame := func(segment wire.TCP) {
					segment.Dst = service
					frame, err := r.Client.Frame(hosttest.ClientInterface, r.Server, hosttest.ServerInterface, segment.Packet())
					if err != nil {
						t.Fatal(err)
					}
					frames = append(frames, frame)
				}
				for port := range uint16(handshakes) {
					frame(wire.TCP{Src: netip.AddrPortFrom(ghost, 1024+port), Flags: wire.SYN, Seq: 1, Options: wire.SYNOptions(1400, 7)})
				}
				if err := r.Client.Send(hosttest.ClientInterface, frames...); err != nil {
					t.Fatal(err)
				}
				eventually(t, "a SYN-ACK to each SYN", func() bool { // which the stack repeats
					for _, frame := range answers() {
						p := wire.Parse(frame)
						answered[p.DstPort] = p
					}
					return len(answered) == handshakes
				})
				next := as.Clone()
				next.Version, next.VIPs[0].Settings = as.Version+1, to
				next.VIPs[0].Migration = &controller.Migration{From: from, Stage: stage, Version: next.Version, Since: time.Unix(1, 0)}
				if err := r.agent.Apply(next); err != nil {
					t.Fatal(err)
				}
				frames = nil
				for port, p := range answered {
					frame(wire.TCP{Src: netip.AddrPortFrom(ghost, port), Flags: wire.ACK, Seq: p.Ack, Ack: p.Seq + 1, Options: wire.Timestamp(8, p.Timestamp.Val)})
				}
				if err := r.Client.Send(hosttest.ClientInterface, frames...); err != nil {
					t.Fatal(err)
				}
				eventually(t, "all are opened", func() bool {
					opened := 0
					for c, is := range must(r.agent.Connections(service))(t) {
						if c.Client.Addr() == ghost && bool(is) {
							opened++
						}
					}
					return opened == handshakes
				})
			})
		}
	}
}
