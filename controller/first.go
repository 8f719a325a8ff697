package controller

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/controller/buckets"
	"github.com/fairlead/fairlead/hash"
	"github.com/fairlead/fairlead/vip"
)

// MaxVIPID bounds VIPs' IDs, so that counters of an ID are found by index. The
// VIP table (tables.MaxKeys) holds fewer VIPs than there are IDs.
const MaxVIPID = vip.MaxVIPs

// First is version 1: a pure function of the file, so that a balancer and a
// host that start from the same file agree before anything was handed over.
// Servers get slots in the order of their pools. It fails only for a Config
// that does not hold together (see config.Validate).
func First(cfg *config.Config) (*Assignment, error) {
	want, err := desired(cfg)
	if err != nil {
		return nil, err
	}
	if len(want) > MaxVIPID {
		return nil, fmt.Errorf("%d VIPs: at most %d; remove some from the file", len(want), MaxVIPID)
	}
	a := &Assignment{
		Version: 1,
		Keys:    []Key{{Epoch: 0, Secret: deriveKey(cfg.SecretBytes(), 0)}},
		HashKey: deriveHashKey(cfg.SecretBytes()),
	}
	for i, w := range want {
		v := w.vip
		v.ID = uint32(i + 1)
		v.size(len(w.members))
		for j, m := range w.members {
			s := m.slot(uint16(j))
			if s.State == Joining {
				s.State = Active
			}
			v.Slots = append(v.Slots, s)
		}
		v.TierTwo = w.tierSlots(0, func(s State) State {
			if s == Joining {
				return Active
			}
			return s
		})
		v.stepHorizon(time.Time{})
		if v.Chains() {
			v.Buckets = buckets.New(w.buckets, v.BucketServers())
		}
		a.VIPs = append(a.VIPs, v)
	}
	a.Sources = sources(cfg)
	a.NextVIPID = uint32(len(want))%MaxVIPID + 1
	return a, a.Validate()
}

// deriveKey is the deployment secret's key for one epoch. A file without
// secret (no VIP of scheme cheetah) gives a key that everybody knows;
// publicKey finds it, and Plan replaces it before the first cookie.
func deriveKey(secret []byte, epoch uint32) []byte {
	return derive(secret, "fairlead epoch key", epoch)
}

func publicKey(k Key) bool { return hmac.Equal(k.Secret, deriveKey(nil, k.Epoch)) }

func deriveHashKey(secret []byte) hash.Key {
	b := derive(secret, "fairlead hash key", 0)
	return hash.Key{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

func derive(secret []byte, purpose string, n uint32) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(purpose))
	m.Write(binary.BigEndian.AppendUint32(nil, n))
	return m.Sum(nil)
}
