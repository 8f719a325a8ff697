package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/lab/netspace"
)

// A lab that is exposed has the daemons' APIs at the machines' addresses,
// behind certificates of `fairlead certs`, as where daemons are on machines of
// their own.

const (
	exposedPort = 7443
	// exposedDescriptors is how many each daemon may have: few enough for one
	// client to use up and have as many again wait, so that time-outs alone
	// help nobody.
	exposedDescriptors = 1024
)

// endpoint is a daemon's API as the configuration names it.
func (l *Lab) endpoint(machine string) string {
	if !l.Exposed {
		return "unix:" + l.socket(machine)
	}
	return "https://" + l.exposedAt(machine).String()
}

// exposedAt is the address of a daemon's API.
func (l *Lab) exposedAt(machine string) netip.AddrPort {
	var address netip.Addr
	if n := slices.Index(l.fronts(), machine); n >= 0 {
		address = netip.MustParseAddr(lbAddress4(n + 1))
	} else {
		address = l.serverAddresses(slices.Index(l.servers(), machine) + 1)[0]
	}
	return netip.AddrPortFrom(address, exposedPort)
}

// certificates is the folder of a daemon's.
func (l *Lab) certificates(machine string) string {
	return filepath.Join(l.path("certs"), l.daemonName(machine))
}

// fileOf is the configuration on a daemon's machine: all have one, and their own
// certificates beside it.
func (l *Lab) fileOf(name string) string {
	if !l.Exposed {
		return l.ConfigPath()
	}
	return filepath.Join(l.certificates(name), filepath.Base(l.ConfigPath()))
}

// there is args of a command on a machine: what names the lab's file names the machine's.
func (l *Lab) there(machine string, args []string) []string {
	args = slices.Clone(args)
	for i := range args {
		if args[i] == l.ConfigPath() {
			args[i] = l.fileOf(machine)
		}
	}
	return args
}

// certify makes the daemons' certificates.
func (l *Lab) certify(ctx context.Context) error {
	if !l.Exposed {
		return nil
	}
	out, err := exec.CommandContext(ctx, l.program(""), "certs", "-f", l.ConfigPath(), l.path("certs")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make certificates: %w: %s", err, out)
	}
	folders, err := os.ReadDir(l.path("certs"))
	for _, f := range folders {
		if err == nil && f.IsDir() {
			err = os.Symlink(l.ConfigPath(), filepath.Join(l.path("certs"), f.Name(), filepath.Base(l.ConfigPath())))
		}
		if errors.Is(err, os.ErrExist) {
			err = nil // from an earlier time
		}
	}
	if err != nil {
		return fmt.Errorf("give each machine its file: %w", err)
	}
	if l.Remote && !l.Before {
		return l.UserCertificate(ctx, firstUser)
	}
	return nil
}

// firstUser is who makes changes where nobody else is named.
const firstUser = "operator"

// UserCertificate makes a certificate for somebody who may do everything.
func (l *Lab) UserCertificate(ctx context.Context, name string) error {
	out, err := exec.CommandContext(ctx, l.Program, "certs", "-f", l.ConfigPath(), l.path("certs"), "--user", name, "--role", "administer").CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a certificate for %s: %w: %s", name, err, out)
	}
	return nil
}

// AsUser is the variable by which a command takes a user's certificate.
func (l *Lab) AsUser(name string) string {
	return "FAIRLEAD_CERTS=" + filepath.Join(l.path("certs"), name)
}

func (l *Lab) asUser() []string {
	if !l.Remote {
		return nil
	}
	return []string{l.AsUser(firstUser)}
}

// expose makes the router know the networks behind switches.
func (l *Lab) expose() error {
	if !l.Exposed || !l.faild() {
		return nil
	}
	return netspace.In(l.namespace("router"), func() error {
		for n := range l.fronts() {
			_, to, err := net.ParseCIDR(fmt.Sprintf("10.77.%d.0/24", 16+n+1))
			if err != nil {
				return err
			}
			if err := netlink.RouteReplace(&netlink.Route{Dst: to, Gw: net.ParseIP(lbAddress4(n + 1))}); err != nil {
				return fmt.Errorf("route %s: %w", to, err)
			}
		}
		return nil
	})
}

// exposedAPI calls a daemon from its own machine.
func (l *Lab) exposedAPI(machine string) fairleadv1connect.FairleadClient {
	at := l.exposedAt(machine).String()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			settings, err := l.certificate(machine)
			if err != nil {
				return nil, err
			}
			var conn net.Conn
			err = netspace.In(l.namespace(machine), func() error {
				var err error
				conn, err = new(net.Dialer).DialContext(ctx, "tcp", at)
				return err
			})
			if err != nil {
				return nil, err
			}
			secured := tls.Client(conn, settings)
			if err := secured.HandshakeContext(ctx); err != nil {
				conn.Close()
				return nil, err
			}
			return secured, nil
		},
	}
	return fairleadv1connect.NewFairleadClient(&http.Client{Transport: transport}, "https://"+at)
}

// certificate is what a daemon's machine shows and trusts.
func (l *Lab) certificate(machine string) (*tls.Config, error) {
	folder := l.certificates(machine)
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13,
		ServerName: l.exposedAt(machine).Addr().String()}, nil
}
