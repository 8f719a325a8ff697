package pathseltest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/fabric/pathsel"
)

// What reading and choosing cost in C, one packet over and over: the ratio of
// the permutations to "none" is what counts, and what a whole program adds to
// both is `fairlead bench`'s to say.
func BenchmarkTwin(b *testing.B) {
	for _, p := range []pathsel.Permutation{pathsel.None, pathsel.Feistel, pathsel.RC5, pathsel.Skip32} {
		b.Run(string(p), func(b *testing.B) {
			s, err := pathsel.New(pathsel.Config{Permutation: p, Radix: 16, IPv4: pathsel.Ports, IPv6: pathsel.Ports})
			if err != nil {
				b.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 1))
			x := load(b, s, pathsel.NewRouter(s, "r"))
			g := randomGroup(b, r, s)
			if err := x.objects.Groups.Put(uint32(0), g); err != nil {
				b.Fatal(err)
			}
			var packet bytes.Buffer
			if err := binary.Write(&packet, binary.LittleEndian, packetOf(pathsel.Flow{
				Src: randomFlow(r).Src, Dst: randomFlow(r).Dst, Proto: 6, SrcPort: 5000, DstPort: 80,
			}, 64)); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			if _, err := x.objects.PathselTest.Run(&ebpf.RunOptions{Data: packet.Bytes(), Repeat: uint32(b.N)}); err != nil {
				b.Fatal(err)
			}
		})
	}
}
