package mptcp

import (
	"encoding/binary"
	"net/netip"
	"os"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// message is what sock_diag says of a subflow of IPv4.
func message(t testing.TB) []byte {
	t.Helper()
	b := make([]byte, diagMessageSize)
	b[0], b[1] = unix.AF_INET, stateEstablished
	binary.BigEndian.PutUint16(b[4:], 40000)
	binary.BigEndian.PutUint16(b[6:], 80)
	copy(b[8:], []byte{10, 0, 0, 1})
	copy(b[24:], []byte{10, 0, 0, 2})
	info := make([]byte, 168)
	info[2], info[3], info[4] = 1, 2, 3
	binary.NativeEndian.PutUint32(info[24:], 24)
	binary.NativeEndian.PutUint32(info[68:], 68)
	binary.NativeEndian.PutUint64(info[120:], 120)
	binary.NativeEndian.PutUint64(info[128:], 128)
	binary.NativeEndian.PutUint64(info[160:], 160)
	e := netlink.NewAttributeEncoder()
	e.Bytes(inetDiagInfo, info)
	e.Nested(inetDiagULPInfo, func(e *netlink.AttributeEncoder) error {
		e.String(1, "mptcp")
		e.Nested(ulpInfoMPTCP, func(e *netlink.AttributeEncoder) error {
			e.Uint32(1, 7)
			e.Uint32(subflowTokenLocal, 0xabcdef01)
			e.Uint32(subflowFlags, flagJoinLocal|flagEstablished)
			e.Uint8(subflowIDRemote, 4)
			e.Uint8(subflowIDLocal, 9)
			return nil
		})
		return nil
	})
	attrs, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append(b, attrs...)
}

func TestParseSubflow(t *testing.T) {
	whole := message(t)
	want := Subflow{
		Token: 0xabcdef01, Local: netip.MustParseAddrPort("10.0.0.1:40000"), Remote: netip.MustParseAddrPort("10.0.0.2:80"),
		LocalID: 9, RemoteID: 4, State: stateEstablished, Established: true, Client: true,
		Info: Info{Retransmits: 1, Probes: 2, Backoff: 3, Unacked: 24, RTT: 68, Acked: 120, Received: 128, Rate: 160},
	}
	if s, ok := parseSubflow(whole); !ok || s != want {
		t.Errorf("%+v, %v", s, ok)
	}
	for n := range whole {
		if s, ok := parseSubflow(whole[:n]); ok && s.Token != want.Token {
			t.Errorf("%d of %d bytes: %+v", n, len(whole), s)
		}
	}
	// A socket of plain TCP has no attribute of Multipath TCP.
	if _, ok := parseSubflow(whole[:diagMessageSize]); ok {
		t.Error("a subflow without attributes")
	}
	six := append([]byte{}, whole...)
	six[0] = unix.AF_INET6
	copy(six[8:], netip.MustParseAddr("::ffff:10.0.0.1").AsSlice())
	copy(six[24:], netip.MustParseAddr("fd00::2").AsSlice())
	if s, ok := parseSubflow(six); !ok || s.Local != want.Local || s.Remote != netip.MustParseAddrPort("[fd00::2]:80") {
		t.Errorf("IPv6: %+v, %v", s, ok)
	}
}

func TestParseEvent(t *testing.T) {
	e := netlink.NewAttributeEncoder()
	e.Uint32(eventToken, 5)
	e.Uint8(eventError, uint8(unix.ECONNREFUSED))
	e.Uint32(eventReset, 3)
	attrs, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	whole := append([]byte{eventSubClosed, 1, 0, 0}, attrs...)
	want := event{kind: eventSubClosed, token: 5, err: unix.ECONNREFUSED, reset: 3}
	if got, ok := parseEvent(whole); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	for n := range whole {
		parseEvent(whole[:n]) // must not panic
	}
}

// TestListenError: who is not root is told so, in words.
func TestListenError(t *testing.T) {
	err := listenError(&netlink.OpError{Op: "join-group", Err: os.NewSyscallError("setsockopt", unix.EPERM)})
	if want := "listen for MPTCP's events: operation not permitted; run as root (CAP_NET_ADMIN)"; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
