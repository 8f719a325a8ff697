package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/store"
)

// TestTexts: each version that is kept has the text that it was planned from, however
// seldom that changed; others are gone.
func TestTexts(t *testing.T) {
	for _, every := range []uint64{1, 25, 1000} {
		memory := store.NewMemory()
		client := memory.Client()
		l := open(t, client, secret)
		head, err := l.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if text, err := l.Text(t.Context(), head.Desired); text != nil || err != nil {
			t.Error(text, err)
		}
		a := first(t, 1, 2)
		const n = Kept + 3*snapshotEvery + 3
		textOf := func(v uint64) string { return fmt.Sprintf("text of %d # %x", (v-1)/every*every+1, secret) }
		for ; a.Version <= n; a.Version++ {
			c := Change{Who: "somebody"}
			if (a.Version-1)%every == 0 {
				c.Text = []byte(textOf(a.Version))
			}
			if head, err = l.Append(t.Context(), head, nil, a, c); err != nil {
				t.Fatal(err)
			}
			if head.Desired.Version != (a.Version-1)/every*every+1 {
				t.Fatalf("head %+v", head)
			}
		}
		if head, err = l.Turn(t.Context(), head, 3); err != nil || head.Desired.Version == 0 {
			t.Errorf("%+v %v", head, err)
		}
		for v := uint64(n - Kept); v <= n; v++ {
			text, err := l.TextOf(t.Context(), v)
			if err != nil || string(text) != textOf(v) {
				t.Fatalf("every %d, version %d: %q %v", every, v, text, err)
			}
		}
		entries, _, err := client.Read(t.Context(), desiredKey)
		if most := int((Kept+2*snapshotEvery)/every) + 2; err != nil || len(entries) > most {
			t.Errorf("every %d: %d texts are kept, more than %d (%v)", every, len(entries), most, err)
		}
	}
}

// TestTextDamaged: a text is in parts that the store takes, never in the clear, and
// never taken over where it is not what was written, or another's.
func TestTextDamaged(t *testing.T) {
	memory := store.NewMemory()
	client := memory.Client()
	l := open(t, client, secret)
	head, err := l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var large strings.Builder // which no compression makes small
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		fmt.Fprintf(&large, "%x\n", r.Uint64())
	}
	a := first(t, 1, 2)
	var texts [2]Desired
	for i, text := range []string{large.String(), "another"} {
		if head, err = l.Append(t.Context(), head, nil, a, Change{Text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		texts[i] = head.Desired
		a.Version++
	}
	if got, err := l.Text(t.Context(), texts[0]); err != nil || string(got) != large.String() || texts[0].Parts < 2 {
		t.Errorf("%d parts, %v", texts[0].Parts, err)
	}
	if got, err := l.Text(t.Context(), Desired{1, texts[1].Token, 1}); err == nil {
		t.Errorf("another place: %q", got)
	}
	entries, _, err := client.Read(t.Context(), desiredKey)
	if err != nil || len(entries) != texts[0].Parts+1 {
		t.Fatal(len(entries), err)
	}
	for i, e := range entries {
		if bytes.Contains(e.Value, []byte("another")) || len(e.Value) > 512<<10 {
			t.Errorf("%s: %d bytes", e.Key, len(e.Value))
		}
		for _, damaged := range [][]byte{nil, e.Value[:len(e.Value)-1], entries[(i+1)%len(entries)].Value} {
			if _, err := client.Commit(t.Context(), nil, store.Op{Key: e.Key, Value: damaged}); err != nil {
				t.Fatal(err)
			}
			l := open(t, client, secret) // which knows nothing of it
			if text, err := l.Text(t.Context(), texts[min(i/texts[0].Parts, 1)]); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %d bytes, %v", e.Key, len(text), err)
			}
		}
		if _, err := client.Commit(t.Context(), nil, store.Op{Key: e.Key, Value: e.Value}); err != nil {
			t.Fatal(err)
		}
	}
}
