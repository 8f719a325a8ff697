package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Link types of pcap files that ReadPcap understands.
const (
	linkEthernet = 1
	linkRaw      = 101 // starts with the IP header
	linkSLL      = 113 // tcpdump -i any: 16 bytes, EtherType in the last two
	linkSLL2     = 276 // the same of later versions: 20 bytes, EtherType first
	maxRecord    = 256 << 10
)

// Captured is one record of a pcap file.
type Captured struct {
	Time  time.Time
	Frame []byte
	// Length is the packet's length on the wire; more than len(Frame) when
	// the capture cut it.
	Length int
}

// WritePcap writes frames as a classic pcap file (nanoseconds, Ethernet).
func WritePcap(w io.Writer, frames []Captured) error {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b23c4d)
	b = le.AppendUint16(b, 2)
	b = le.AppendUint16(b, 4)
	b = append(b, make([]byte, 8)...) // zone, accuracy: always zero
	b = le.AppendUint32(b, maxRecord)
	b = le.AppendUint32(b, linkEthernet)
	for _, f := range frames {
		length := max(f.Length, len(f.Frame))
		b = le.AppendUint32(b, uint32(f.Time.Unix()))
		b = le.AppendUint32(b, uint32(f.Time.Nanosecond()))
		b = le.AppendUint32(b, uint32(len(f.Frame)))
		b = le.AppendUint32(b, uint32(length))
		b = append(b, f.Frame...)
		if _, err := w.Write(b); err != nil {
			return fmt.Errorf("write pcap: %w", err)
		}
		b = b[:0]
	}
	if len(b) > 0 { // no frames: the header alone
		if _, err := w.Write(b); err != nil {
			return fmt.Errorf("write pcap: %w", err)
		}
	}
	return nil
}

// ReadPcap reads a classic pcap file of either byte order, in micro- or
// nanoseconds, of Ethernet frames, of raw IP packets or of Linux's "any"
// interface (both of which get an Ethernet header). pcapng is refused with the
// remedy. With an error comes what was read before it.
func ReadPcap(r io.Reader) ([]Captured, error) {
	var out []Captured
	err := EachPcap(r, func(c Captured) error {
		c.Frame = slices.Clone(c.Frame)
		out = append(out, c)
		return nil
	})
	return out, err
}

// EachPcap is ReadPcap for files of any size: it calls f for each record in
// turn, whose frame is valid until f returns, and ends with f's first error.
func EachPcap(r io.Reader, f func(Captured) error) error {
	header := make([]byte, 24)
	if _, err := io.ReadFull(r, header); err != nil {
		return fmt.Errorf("read pcap: the file is shorter than a pcap header (24 bytes): %w", err)
	}
	var order binary.ByteOrder = binary.LittleEndian
	unit := time.Microsecond
	switch binary.LittleEndian.Uint32(header) {
	case 0xa1b2c3d4:
	case 0xa1b23c4d:
		unit = time.Nanosecond
	case 0xd4c3b2a1:
		order = binary.BigEndian
	case 0x4d3cb2a1:
		order, unit = binary.BigEndian, time.Nanosecond
	case 0x0a0d0d0a:
		return errors.New("read pcap: this is pcapng; convert it: editcap -F pcap IN OUT")
	default:
		return fmt.Errorf("read pcap: first bytes %x are no pcap file's", header[:4])
	}
	link := order.Uint32(header[20:]) & 0xffff
	if !slices.Contains([]uint32{linkEthernet, linkRaw, linkSLL, linkSLL2}, link) {
		return fmt.Errorf("read pcap: link type %d: Ethernet (1), raw IP (101) and Linux's any (113, 276) are understood; capture on one interface", link)
	}
	record := make([]byte, 16)
	var buffer []byte
	at := int64(len(header)) // byte of the file
	for packet := 1; ; packet++ {
		if n, err := io.ReadFull(r, record); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read pcap: packet %d: cut in its header (at byte %d of the file)", packet, at+int64(n))
		}
		at += int64(len(record))
		size := order.Uint32(record[8:])
		if size > maxRecord {
			return fmt.Errorf("read pcap: packet %d: length %d is over %d (before byte %d of the file)", packet, size, maxRecord, at)
		}
		buffer = slices.Grow(buffer[:0], int(size))[:size]
		n, err := io.ReadFull(r, buffer)
		at += int64(n)
		if err != nil {
			return fmt.Errorf("read pcap: packet %d: cut (at byte %d of the file: %d of its %d bytes are there)", packet, at, n, size)
		}
		length := int(order.Uint32(record[12:]))
		frame := ethernetOf(link, buffer)
		length += len(frame) - len(buffer)
		seconds := time.Unix(int64(order.Uint32(record)), int64(time.Duration(order.Uint32(record[4:]))*unit)).UTC()
		if err := f(Captured{Time: seconds, Frame: frame, Length: length}); err != nil {
			return err
		}
	}
}

// ethernetOf gives a record of another link type an Ethernet header.
func ethernetOf(link uint32, b []byte) []byte {
	kind, header := 0, 0 // of the record
	switch link {
	case linkRaw:
		return Link{}.Frame(b)
	case linkSLL:
		kind, header = 14, 16
	case linkSLL2:
		kind, header = 0, 20
	}
	if header == 0 || len(b) < header {
		return b
	}
	return Link{EtherType: binary.BigEndian.Uint16(b[kind:])}.Frame(b[header:])
}
