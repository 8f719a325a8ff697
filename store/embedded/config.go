package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/pkg/v3/featuregate"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/features"
	"google.golang.org/grpc"
)

// config is etcd's, with its defaults where nothing is said.
func (o *Options) config() (*embed.Config, error) {
	if o.Name == "" || strings.ContainsAny(o.Name, "=,") {
		return nil, errors.New("a member needs a name, without = and commas")
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = o.Name, o.Dir
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "1h" // for watches that were away
	cfg.QuotaBackendBytes = cmp.Or(o.QuotaBytes, 2<<30)
	// Etcd keeps so many commits in memory for members that were away, and reads so
	// many at a start. Its 5000 and 10000 are for small ones.
	cfg.SnapshotCatchUpEntries, cfg.SnapshotCount = 500, 1000
	cfg.EnableGRPCGateway = false // nobody speaks JSON to it
	cfg.InitialClusterToken = "fairlead"
	// Before it answers anybody it compares what it has with the others: values on disk
	// have no checksums.
	gates, ok := cfg.ServerFeatureGate.(featuregate.MutableFeatureGate)
	if !ok {
		return nil, errors.New("this etcd has no features to choose")
	}
	if err := gates.Set(string(features.InitialCorruptCheck) + "=true"); err != nil {
		return nil, err
	}

	var err error
	if cfg.ListenClientUrls, err = o.addresses(o.Client, &cfg.ClientTLSInfo); err != nil {
		return nil, fmt.Errorf("client addresses: %w", err)
	}
	if cfg.ListenPeerUrls, err = o.addresses(o.Peer, &cfg.PeerTLSInfo); err != nil {
		return nil, fmt.Errorf("peer addresses: %w", err)
	}
	if o.guarded() && cfg.PeerTLSInfo.CertFile != "" {
		cfg.PeerTLSInfo.AllowedHostnames = o.hosts() // nobody else speaks as a member
	}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls

	initial := o.Initial
	if len(initial) == 0 {
		initial = map[string]string{o.Name: o.Peer[0]}
	}
	if !slices.Contains(o.Peer, initial[o.Name]) {
		return nil, fmt.Errorf("the initial members have %q for it, which is none of its peer addresses", initial[o.Name])
	}
	var members []string
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		members = append(members, name+"="+initial[name])
	}
	cfg.InitialCluster = strings.Join(members, ",")
	return cfg, nil
}

// addresses parses them, and fills tls if one needs it.
func (o *Options) addresses(addresses []string, tls *transport.TLSInfo) ([]url.URL, error) {
	if len(addresses) == 0 {
		return nil, errors.New("there is none")
	}
	var urls []url.URL
	for _, a := range addresses {
		u, err := url.Parse(a)
		if err != nil && strings.Contains(a, "://") {
			return nil, err
		} else if err != nil {
			u = &url.URL{}
		}
		switch u.Scheme {
		case "unix":
			if u.Host != "" || u.Path == "" {
				return nil, fmt.Errorf("%s: a socket is unix:///path", a)
			}
		case "https", "http":
			if ip := net.ParseIP(u.Hostname()); ip == nil || ip.IsUnspecified() || u.Port() == "" {
				return nil, fmt.Errorf("%s: clients and members find it there: an IP address and a port", a)
			}
		default:
			return nil, fmt.Errorf("%s: it begins with https://, http:// or unix://", a)
		}
		if u.Scheme == "https" {
			if o.TLS.Cert == "" || o.TLS.Key == "" || o.TLS.CA == "" {
				return nil, fmt.Errorf("%s: https needs a certificate, its key and the authority", a)
			}
			*tls = transport.TLSInfo{CertFile: o.TLS.Cert, KeyFile: o.TLS.Key, TrustedCAFile: o.TLS.CA, ClientCertAuth: true,
				// A member may come from another of its addresses than it answers at.
				SkipClientSANVerify: true}
		}
		urls = append(urls, *u)
	}
	return urls, nil
}

// hangingUp ends streams (watches) with serving. Etcd would wait 7 s for clients to end
// theirs when it stops.
func hangingUp(serving context.Context) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainStreamInterceptor(
		func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			ctx, cancel := context.WithCancel(stream.Context())
			defer cancel()
			defer context.AfterFunc(serving, cancel)()
			return handle(server, ending{stream, ctx})
		})}
}

type ending struct {
	grpc.ServerStream
	ctx context.Context
}

func (e ending) Context() context.Context { return e.ctx }
