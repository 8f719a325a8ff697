// Package access is who may call what of the API: a caller's role, and the role that
// each method needs. The schema (api/*.proto) says the same beside each method of
// Control.
package access

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// Role is what a caller may do. Each may what those before it may.
type Role int

const (
	// None may nothing.
	None Role = iota
	// View may look.
	View
	// Operate may change what the pool of a VIP is, as long as no connection breaks.
	Operate
	// Administer may change everything.
	Administer
	// machines is more than any role: what daemons alone ask each other.
	machines
)

// Roles are those that a certificate may have, the least first.
var Roles = []Role{View, Operate, Administer}

var roleNames = map[Role]string{None: "none", View: "view", Operate: "operate", Administer: "administer", machines: "that of a machine"}

func (r Role) String() string { return roleNames[r] }

// ParseRole is the role called name.
func ParseRole(name string) (Role, error) {
	for _, r := range Roles {
		if r.String() == name {
			return r, nil
		}
	}
	return None, fmt.Errorf("%q is no role: write view, operate or administer", name)
}

// Unit is the organizational unit in the subject of a certificate of that role.
func (r Role) Unit() string { return unitPrefix + r.String() }

const unitPrefix = "fairlead-"

// UserUsage is the extended key usage of users' certificates. It stands instead of
// that for TLS clients, so that the store, which knows no roles, and takes everybody
// with a client's certificate of the deployment's authority, refuses them. (An arc
// that needs no registration, ITU-T X.667.)
var UserUsage = asn1.ObjectIdentifier{2, 25, 1718526483}

// Caller is somebody who was authenticated.
type Caller struct {
	// Name is the certificate's common name, or a user of this machine.
	Name string
	Role Role
	// Machine: a daemon of the deployment, which may call what daemons alone ask
	// each other.
	Machine bool
}

// OfCertificate is whose a certificate is; it was verified. One that says no role is
// a machine's.
func OfCertificate(c *x509.Certificate) Caller {
	caller := Caller{Name: c.Subject.CommonName}
	user := false
	for _, unit := range c.Subject.OrganizationalUnit {
		name, ok := strings.CutPrefix(unit, unitPrefix)
		if !ok {
			continue // the authority's own
		}
		user = true
		if r, err := ParseRole(name); err == nil {
			caller.Role = max(caller.Role, r)
		}
	}
	for _, usage := range c.UnknownExtKeyUsage {
		user = user || usage.Equal(UserUsage)
	}
	if !user {
		caller.Role, caller.Machine = View, true
	}
	return caller
}

// Usable says whether a certificate may be a caller's at all.
func Usable(c *x509.Certificate) error {
	for _, usage := range c.ExtKeyUsage {
		if usage == x509.ExtKeyUsageClientAuth || usage == x509.ExtKeyUsageAny {
			return nil
		}
	}
	for _, usage := range c.UnknownExtKeyUsage {
		if usage.Equal(UserUsage) {
			return nil
		}
	}
	if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 { // for everything
		return nil
	}
	return fmt.Errorf("the certificate of %q is for other uses: its extended key usage is neither a client's nor a user's", c.Subject.CommonName)
}

// OfUser is whose a process of this machine is, at a unix socket: root, and whoever
// this process runs as, may everything.
func OfUser(uid uint32) Caller {
	caller := Caller{Name: "uid " + strconv.FormatUint(uint64(uid), 10)}
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		caller.Name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		caller.Name += "@" + host
	}
	if uid == 0 || uid == uint32(os.Geteuid()) {
		caller.Role, caller.Machine = Administer, true
	}
	return caller
}

type key struct{}

// With is ctx of a call by caller.
func With(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, key{}, caller)
}

// From is who called; without one, nobody, who may nothing.
func From(ctx context.Context) Caller {
	caller, _ := ctx.Value(key{}).(Caller)
	return caller
}
