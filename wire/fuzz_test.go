package wire

import (
	"bytes"
	"math"
	"net/netip"
	"testing"
	"time"
)

// FuzzDecode: whatever arrives, no decoder panics, changes what it reads, or
// finds in a tunnel what was not in it.
func FuzzDecode(f *testing.F) {
	hops := NewHops(0x01020304, 7, 5, 0x0102)
	inner := TCP{Src: c4, Dst: v4, Flags: ACK, Options: Timestamp(1, 2)}.Packet()
	for _, frame := range [][]byte{
		TCP{Src: c4, Dst: v4, Flags: SYN, Options: SYNOptions(1460, 1000)}.Frame(),
		TCP{Src: c6, Dst: v6, Flags: SYN, Options: SYNOptions(1460, 1000)}.Frame(),
		UDP{Src: c6, Dst: v6, IP: IP{Atomic: true}}.Frame(),
		UDP{Src: c4, Dst: v4, Payload: QUICInitial(QUIC1, 1, 1200)}.Frame(),
		ICMPError{Src: c4.Addr(), Dst: v4.Addr(), Type: ICMPUnreachable, Quoted: TCP{Src: v4, Dst: c4}.Packet()}.Frame(),
		ICMPError{Src: c6.Addr(), Dst: v6.Addr(), Type: ICMPv6TooBig, Quoted: TCP{Src: v6, Dst: c6}.Packet()}.Frame(),
	} {
		f.Add(frame)
		f.Add(frame[EthernetLen:])
		f.Add(frame[:len(frame)-3])
	}
	for _, ends := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00::1", "fd00::2"}} {
		for _, tunnel := range Tunnels() {
			for _, h := range []*Hops{nil, &hops} {
				o := Outer{Tunnel: tunnel, Src: netip.MustParseAddr(ends[0]), Dst: netip.MustParseAddr(ends[1]), Checksum: h != nil, Hops: h}
				f.Add(o.Encapsulate(inner))
			}
		}
	}
	f.Add(hops.Append(nil))
	f.Add(SYNOptions(1460, 1000))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		for _, p := range []*Parsed{Parse(b), ParsePacket(b)} {
			p.ChecksumErrors()
			if p.Err == nil && p.Version != 0 {
				_, _, _ = Decapsulate(p.Packet())
			}
		}
		if ts, ok, err := FindTimestamp(b); ok && err == nil && !bytes.Contains(b, BareTimestamp(ts.Val, ts.Ecr)) {
			t.Errorf("timestamp %+v is not there", ts)
		}
		if inner, o, err := Decapsulate(b); err == nil && (len(inner) >= len(b) || !bytes.Contains(b, inner) || !o.Src.IsValid()) {
			t.Errorf("%x from %v out of %x", inner, o.Src, b)
		}
		if h, err := ParseHops(b); err == nil && !bytes.Equal(h.Append(nil), b[:HopsBytes]) {
			t.Errorf("hops %+v are encoded as %x", h, h.Append(nil))
		}
		if !bytes.Equal(b, before) {
			t.Error("a decoder changed what it read")
		}
	})
}

// FuzzFaild: a MAC is none of Faild's, refused, or what it is encoded as.
func FuzzFaild(f *testing.F) {
	for _, m := range []MAC{{byte(FaildPass), 0, 0x40, 0, 0, 0}, {byte(FaildCopy), 0, 0x40, 0x20, 0x0c, 4}, {byte(FaildBack), 0, 0x40, 0x10, 0, 0}, {1}} {
		f.Add(m[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m MAC
		copy(m[:], b)
		d, ok, err := DecodeFaild(m)
		if !ok || err != nil {
			return
		}
		if again, err := EncodeFaild(d); err != nil || again != m {
			t.Errorf("%x is %+v, which is encoded as %x (%v)", m, d, again, err)
		}
	})
}

// FuzzPcap: what a capture holds is bounded by the file, and stays itself
// written anew.
func FuzzPcap(f *testing.F) {
	var file bytes.Buffer
	frame := TCP{Src: c4, Dst: v4, Flags: ACK}.Frame()
	if err := WritePcap(&file, []Captured{{time.Unix(1700000000, 5), frame, 0}, {time.Unix(1700000001, 0), frame[:40], len(frame)}}); err != nil {
		f.Fatal(err)
	}
	for _, link := range []byte{linkEthernet, linkRaw, linkSLL} {
		b := bytes.Clone(file.Bytes())
		b[20] = link
		f.Add(b)
	}
	f.Add(file.Bytes()[:30])
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := ReadPcap(bytes.NewReader(b))
		size := 24
		for i, r := range records {
			size += 16 + len(r.Frame) - EthernetLen
			// What no file of this form can say is not compared.
			if r.Time.Unix() > math.MaxUint32 || r.Length > math.MaxUint32 || len(r.Frame) > maxRecord {
				return
			}
			records[i].Length = max(r.Length, len(r.Frame))
		}
		if len(records) > 0 && size > len(b) {
			t.Errorf("%d bytes out of %d", size, len(b))
		}
		if err != nil {
			return
		}
		var written bytes.Buffer
		if err := WritePcap(&written, records); err != nil {
			t.Fatal(err)
		}
		again, err := ReadPcap(&written)
		if err != nil || len(again) != len(records) {
			t.Fatalf("%d records, then %d (%v)", len(records), len(again), err)
		}
		for i, r := range records {
			if a := again[i]; !a.Time.Equal(r.Time) || a.Length != r.Length || !bytes.Equal(a.Frame, r.Frame) {
				t.Errorf("record %d: %+v, then %+v", i, r, a)
			}
		}
	})
}
