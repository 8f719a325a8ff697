package spread

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// The ways of choosing, in the order in which they are shown.
var schemeNames = []string{nameCRC16, nameMD5, string(pathsel.RC5), string(pathsel.Skip32), string(pathsel.Feistel)}

const (
	nameCRC16 = "crc16"
	nameMD5   = "md5"
)

// byCFLB tells which of them read selectors.
func byCFLB(scheme string) bool { return scheme != nameCRC16 && scheme != nameMD5 }

// contender is a way in which routers in a row choose next hops.
type contender interface {
	// read looks at a flow's packets as every router gets them.
	read(f *pathsel.Flow)
	// hop is where a router (0 is the first) with n equal next hops sends them.
	hop(router, n int) int
}

func newContender(name string, radix int, seed uint64) (contender, error) {
	switch name {
	case nameCRC16:
		return &crc16{}, nil
	case nameMD5:
		return &md5Hash{}, nil
	}
	return newCFLB(name, radix, seed)
}

// cflb are routers that read selectors. The flows carry none, so that what
// they read is chance.
type cflb struct {
	routers [routers]*pathsel.Router
	groups  [maxHops + 1]*pathsel.Group
	choices [routers]pathsel.Choice
}

// selectorOf is a fabric's configuration; its key comes from the seed.
func selectorOf(permutation string, radix int, seed uint64) pathsel.Config {
	c := pathsel.Config{Permutation: pathsel.Permutation(permutation), Radix: radix, IPv4: pathsel.Ports, IPv6: pathsel.Ports}
	binary.LittleEndian.PutUint64(c.Key[:], seed)
	return c
}

func newCFLB(permutation string, radix int, seed uint64) (*cflb, error) {
	s, err := pathsel.New(selectorOf(permutation, radix, seed))
	if err != nil {
		return nil, err
	}
	c := &cflb{}
	for i := range c.routers {
		c.routers[i] = pathsel.NewRouter(s, fmt.Sprint("router ", i))
	}
	for n := 2; n <= maxHops; n++ {
		hops := make([]pathsel.Hop, n)
		for i := range hops {
			hops[i] = pathsel.Hop{Port: i, Weight: 1}
		}
		if c.groups[n], err = s.Group(hops, 0); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// firstTTL is what the first router receives.
const firstTTL = 64

func (c *cflb) read(f *pathsel.Flow) {
	for i, r := range c.routers {
		c.choices[i] = r.Read(*f, uint8(firstTTL-i))
	}
}

func (c *cflb) hop(router, n int) int {
	hop, _ := c.groups[n].Choose(c.choices[router])
	return hop
}

// tuple is what hashes read of a flow, 37 bytes at most.
func tuple(to []byte, f *pathsel.Flow) []byte {
	to = append(to, f.Src.AsSlice()...)
	to = append(to, f.Dst.AsSlice()...)
	to = append(to, f.Proto)
	to = binary.BigEndian.AppendUint16(to, f.SrcPort)
	return binary.BigEndian.AppendUint16(to, f.DstPort)
}

// md5Hash takes MD5 of the tuple and the router's number, modulo the hops: as
// good as chance.
type md5Hash struct {
	buffer [64]byte
	hashes [routers]uint32
}

func (h *md5Hash) read(f *pathsel.Flow) {
	b := tuple(h.buffer[:0], f)
	for i := range h.hashes {
		sum := md5.Sum(append(b, byte(i)))
		h.hashes[i] = binary.LittleEndian.Uint32(sum[:])
	}
}

func (h *md5Hash) hop(router, n int) int { return int(h.hashes[router] % uint32(n)) }

// crc16 is CRC-16 of the tuple, the same at every router, modulo the hops: what
// Cao et al. (2000) recommended for its price. A number of the router among
// its input would change nothing: CRCs are linear, so it would only renumber
// the hops of a router with 2, 4, 8 or 16.
type crc16 struct {
	buffer [64]byte
	hash   uint16
}

// crcTable is of the polynomial x^16 + x^15 + x^2 + 1, lowest bit first.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i)
		for range 8 {
			crc = crc>>1 ^ 0xa001*(crc&1)
		}
		t[i] = crc
	}
	return t
}()

func (h *crc16) read(f *pathsel.Flow) {
	h.hash = 0
	for _, b := range tuple(h.buffer[:0], f) {
		h.hash = h.hash>>8 ^ crcTable[byte(h.hash)^b]
	}
}

func (h *crc16) hop(_, n int) int { return int(h.hash) % n }
