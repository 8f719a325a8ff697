package rollout

import (
	"crypto/tls"
	"errors"
	"log/slog"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/rollout/ledger"
	"github.com/fairlead/fairlead/store"
)

// Open opens the store that cfg names, and its ledger. Nothing is asked of it yet.
func Open(cfg *config.Config, log *slog.Logger) (store.Store, *ledger.Ledger, error) {
	var certificates *tls.Config
	if cfg.TLS != (config.TLS{}) {
		var err error
		if certificates, err = api.ClientTLS(cfg.TLS); err != nil {
			return nil, nil, err
		}
	}
	endpoints := cfg.StoreEndpoints()
	if len(endpoints) == 0 {
		return nil, nil, errors.New("controllers: missing, and there is no balancer and no switch beside which one would run: name them, or the deployment's store (docs/store.md)")
	}
	for i, e := range endpoints {
		endpoints[i] = store.URL(e)
	}
	s, err := store.Open(store.Options{Endpoints: endpoints, TLS: certificates, Prefix: cfg.Store.Prefix, Log: log})
	if err != nil {
		return nil, nil, err
	}
	l, err := ledger.New(s, cfg.SecretBytes())
	if err != nil {
		_ = s.Close()
		return nil, nil, err
	}
	return s, l, nil
}
