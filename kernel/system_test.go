package kernel

import (
	"strings"
	"testing"
)

// Old kernels are named with the minimum.
func TestOldKernel(t *testing.T) {
	if err := kernelTooOld(6<<16 | 5<<8 | 13); err == nil || !strings.Contains(err.Error(), "Linux 6.5 is too old: 6.6") {
		t.Errorf("6.5: %v", err)
	}
	for _, code := range []uint32{6<<16 | 6<<8, 7 << 16} {
		if err := kernelTooOld(code); err != nil {
			t.Error(err)
		}
	}
}
