package buckets

func Delta(old, new *Table) []byte { panic("being written (A)") }

func (t *Table) ApplyDelta(delta []byte) (*Table, error) { panic("being written (A)") }

// Validate says what is wrong with t, naming the field, its value and the
// remedy.
func (t *Table) Validate() error { panic("being written (A)") }

// MarshalText is base64 of MarshalBinary.
func (t *Table) MarshalText() ([]byte, error) { panic("being written (A)") }

func (t *Table) UnmarshalText(text []byte) error { panic("being written (A)") }

func (t *Table) MarshalBinary() ([]byte, error) { panic("being written (A)") }

func (t *Table) UnmarshalBinary(data []byte) error { panic("being written (A)") }
