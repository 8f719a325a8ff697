package api

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Connection is one of TCP that a server has, as GetHadResponse.connections says it.
type Connection struct {
	Client netip.AddrPort
	Port   uint16 // the VIP's
}

// connectionOctets are one's: address, port and port.
const connectionOctets = 16 + 2 + 2

// AppendConnection appends c to a response's octets.
func AppendConnection(b []byte, c Connection) []byte {
	addr := c.Client.Addr().As16()
	b = append(b, addr[:]...)
	b = binary.BigEndian.AppendUint16(b, c.Client.Port())
	return binary.BigEndian.AppendUint16(b, c.Port)
}

// Connections reads a response's octets.
func Connections(b []byte) ([]Connection, error) {
	if len(b)%connectionOctets != 0 {
		return nil, fmt.Errorf("it names connections in %d octets, no multiple of %d", len(b), connectionOctets)
	}
	all := make([]Connection, 0, len(b)/connectionOctets)
	for ; len(b) > 0; b = b[connectionOctets:] {
		addr := netip.AddrFrom16([16]byte(b[:16])).Unmap()
		all = append(all, Connection{netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[16:])), binary.BigEndian.Uint16(b[18:])})
	}
	return all, nil
}
