package held

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/netspace"
)

// streams are datagrams from the client to each address, which servers send back.
type streams struct {
	stop context.CancelFunc
	wait sync.WaitGroup
	all  []*stream
}

type stream struct {
	mu sync.Mutex
	// sent is when each datagram was, answered whether it came back.
	sent     []time.Time
	answered []bool
}

// every is how often one is sent.
const every = 10 * time.Millisecond

// begin sends.
func (s *streams) begin(ctx context.Context, l *lab.Lab, to []netip.Addr) error {
	ctx, s.stop = context.WithCancel(ctx)
	namespace, err := l.Machine("client")
	if err != nil {
		return err
	}
	for _, a := range to {
		var conn *net.UDPConn
		err := netspace.In(namespace, func() (err error) {
			conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 7)))
			return err
		})
		if err != nil {
			s.end()
			return err
		}
		f := new(stream)
		s.all = append(s.all, f)
		s.wait.Go(func() { f.send(ctx, conn) })
		s.wait.Go(func() { f.receive(conn) })
	}
	return nil
}

// end closes them.
func (s *streams) end() {
	s.stop()
	s.wait.Wait()
}

func (f *stream) send(ctx context.Context, conn *net.UDPConn) {
	defer conn.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for number := uint32(0); ; number++ {
		f.mu.Lock()
		f.sent, f.answered = append(f.sent, time.Now()), append(f.answered, false)
		f.mu.Unlock()
		_, _ = conn.Write(binary.BigEndian.AppendUint32(nil, number)) // what fails is lost
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *stream) receive(conn *net.UDPConn) {
	b := make([]byte, 1500)
	for {
		n, err := conn.Read(b)
		if n >= 4 { // a server's name, a space, what was sent
			f.mu.Lock()
			if number := int(binary.BigEndian.Uint32(b[n-4:])); number < len(f.answered) {
				f.answered[number] = true
			}
			f.mu.Unlock()
		}
		if errors.Is(err, net.ErrClosed) {
			return // others tell of datagrams that were lost
		}
	}
}

// lost is the longest time within which none was answered, of what was sent since.
func (s *streams) lost(since time.Time) (most time.Duration) {
	for _, f := range s.all {
		f.mu.Lock()
		var first time.Time // of those in a row that were lost
		for i, at := range f.sent {
			switch {
			case at.Before(since), time.Since(at) < 10*every && !f.answered[i]: // its answer is under way
			case f.answered[i]:
				if !first.IsZero() {
					most = max(most, at.Sub(first))
				}
				first = time.Time{}
			case first.IsZero():
				first = at
			default:
				most = max(most, at.Sub(first))
			}
		}
		f.mu.Unlock()
	}
	return most
}
