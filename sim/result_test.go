package sim

import (
	"encoding/json"
	"math"
	"testing"
)

func TestCheckJSON(t *testing.T) {
	for _, c := range []struct {
		check Check
		want  string
	}{
		{NewCheck("a", "%", 3, 0, 0, ""), `{"what":"a","unit":"%","ours":3,"holds":false,"low":0,"high":0}`},
		{NewCheck("a", "", 3, 2, Unbounded, "much"), `{"what":"a","ours":3,"reported":"much","holds":true,"low":2}`},
		{NewCheck("a", "", 3, -Unbounded, 3, ""), `{"what":"a","ours":3,"holds":true,"high":3}`},
		{NewCheck("a", "", math.NaN(), 2, 3, ""), `{"what":"a","holds":false,"low":2,"high":3,"ours":null}`},
		{NewCheck("a", "", math.Inf(1), 2, Unbounded, ""), `{"what":"a","holds":false,"low":2,"ours":null}`},
	} {
		got, err := json.Marshal(c.check)
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v; want %s", got, err, c.want)
		}
		var read Check
		if err := json.Unmarshal(got, &read); err != nil {
			t.Errorf("%s: %v", got, err)
		}
		if again, err := json.Marshal(read); err != nil || string(again) != c.want || read.Low != c.check.Low || read.High != c.check.High {
			t.Errorf("read and written again: %s, %v; want %s", again, err, c.want)
		}
	}
}
