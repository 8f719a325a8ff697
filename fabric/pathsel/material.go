package pathsel

import "math/bits"

// Material is the selector as C's programs read it: struct fl_pathsel of
// bpf/include/pathsel.h, byte for byte on a little-endian machine. It holds
// secrets.
type Material struct {
	Hash     hashKeys
	Family   [2]FamilyMaterial
	RC5      [2*rc5Rounds + 2]uint16
	Skip32   [10]uint8
	Permuted uint8 // enum fl_permutation
	Radix    uint8
}

// FamilyMaterial is C's struct fl_pathsel_family.
type FamilyMaterial struct {
	Round   [feistelRounds][2]uint64
	Power   [32]uint32
	Last    uint32
	Inverse uint32
	Length  uint8
	Half    uint8
	Field   uint8 // enum fl_field
	Shift   uint8
	_       uint32
}

// Material is what C's programs need of a selector.
func (s *Selector) Material() Material {
	m := Material{Hash: s.hash, Radix: uint8(s.config.Radix)}
	copy(m.RC5[:], s.rc5)
	if s.skip32 != nil {
		m.Skip32 = *s.skip32
	}
	m.Permuted = map[Permutation]uint8{None: 0, Feistel: 1, RC5: 2, Skip32: 3}[s.config.Permutation]
	for i := range s.families {
		m.Family[i] = s.families[i].material(s.config.Radix)
	}
	return m
}

func (f *family) material(radix int) FamilyMaterial {
	m := FamilyMaterial{
		Last:    uint32(f.limit - 1),
		Inverse: uint32(65536/f.length + 1),
		Length:  uint8(f.length),
		Half:    uint8(f.bits / 2),
		Field:   map[Field]uint8{Ports: 0, SourcePort: 1, FlowLabel: 2}[f.field],
	}
	copy(m.Power[:], f.power)
	if bits.OnesCount(uint(radix)) == 1 {
		m.Shift = uint8(bits.TrailingZeros(uint(radix)))
	}
	if p, ok := f.permutation.(*feistel); ok {
		m.Round = p.rounds
	}
	return m
}
