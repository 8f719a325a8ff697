package daemon

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"connectrpc.com/connect"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/config"
)

// There are three APIs, and an address says not which it is. Whoever asks one process for
// what another answers is told so, in the form that his client reads.

// answering is who has each, and how to come to it.
var answering = map[string]string{
	fairleadv1connect.ControlName:  "controllers (controllers[].api in the configuration)",
	fairleadv1connect.FairleadName: "balancers, agents, switches and routers, each at its own api (`fairlead status` asks all of them)",
	fairleadv1connect.PathsName:    "the path service (`fairlead path serve`)",
}

// directed hands to next what d's API answers, and says where the rest is.
func (d *Daemon) directed(next http.Handler) http.Handler {
	write := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service, method := path.Split(r.URL.Path)
		service = strings.Trim(service, "/")
		_, api := answering[service]
		known := access.Known(r.URL.Path)
		if !api || known && service == d.Service {
			next.ServeHTTP(w, r)
			return
		}
		err := fmt.Errorf("%s has no method %s (api/*.proto has those that there are)", service, method)
		if known {
			err = fmt.Errorf("%s is %s, and does not answer %s: ask %s", d.Name, d.Is, method, d.whoAnswers(service))
		}
		if !write.IsSupported(r) {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_ = write.Write(w, r, connect.NewError(connect.CodeUnimplemented, err)) // the caller is gone, else
	})
}

// whoAnswers is who has the API called service, as far as d knows.
func (d *Daemon) whoAnswers(service string) string {
	var all []config.Controller
	if service == fairleadv1connect.ControlName && d.Controllers != nil {
		all = d.Controllers()
	}
	var at []string
	for _, c := range all {
		at = append(at, fmt.Sprintf("%s at %s", c.Name, c.API))
	}
	if len(at) > 0 {
		return "controllers: " + strings.Join(at, ", ")
	}
	return answering[service]
}
