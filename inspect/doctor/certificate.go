package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/api"
)

// certSoon is how long before its end a certificate is to be renewed, as for status.
const certSoon = 30 * 24 * time.Hour

// certificate: will others take this machine's? If not, they say no more of it than that
// a connection ended.
func (r *report) certificate(o Options, now time.Time) {
	const name = "certificate"
	t := o.Config.TLS
	ends, err := api.OwnEnds(t)
	if err == nil {
		err = api.OwnFault(t, now)
	}
	for _, endpoint := range o.answersAt() {
		if err == nil {
			err = api.OwnNames(t, endpoint)
		}
	}
	switch {
	case err != nil:
		detail, remedy, _ := strings.Cut(err.Error(), "; ")
		r.fail(name, detail, remedy)
	case ends.IsZero(): // no tls
	case ends.Sub(now) < certSoon:
		r.warn(name, fmt.Sprintf("%s ends in %d days, on %s", t.Cert, int(ends.Sub(now).Hours()/24), ends.UTC().Format(time.DateOnly)),
			"run `fairlead certs FOLDER --renew` where the authority is, and copy the cert.pem that it names")
	default:
		r.ok(name, fmt.Sprintf("%s is of %s, names this machine's api, and ends on %s", t.Cert, t.CA, ends.UTC().Format(time.DateOnly)))
	}
}

// answersAt are where this machine's daemons answer.
func (o Options) answersAt() (endpoints []string) {
	if o.Balancer != nil {
		endpoints = append(endpoints, o.Balancer.API)
	}
	if o.Server != nil {
		endpoints = append(endpoints, o.Server.API)
	}
	if o.Switch != nil {
		endpoints = append(endpoints, o.Switch.API)
	}
	return endpoints
}
