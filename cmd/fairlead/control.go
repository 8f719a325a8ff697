package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1/fairleadv1connect"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/kept"
)

// How commands reach the controllers (fairlead.v1.Control): those of the file, one
// after the other, or the one of --api.

// control is how a command calls controllers.
type control struct {
	file, endpoint, certs string
	// changes: what is asked for is a change. looks: daemons are looked at.
	changes, looks bool
	// read is the file, once load has read it: packets wait for a command to read it
	// again.
	read *config.Config
	// beside: the controller runs beside the only balancer or switch. elsewhere: the file's
	// answer at sockets of their own machines, and this has none of them.
	beside, elsewhere bool
}

// controlTimeout bounds a whole change, from asking everybody to the last step, and
// lookTimeout what only looks.
const (
	controlTimeout = 2 * time.Minute
	lookTimeout    = 15 * time.Second
)

// certsVariable names the folder of the user's own certificate.
const certsVariable = "FAIRLEAD_CERTS"

func (c *control) flags(cmd *cobra.Command) {
	fileFlag(cmd, &c.file)
	cmd.Flags().StringVar(&c.endpoint, "api", "", "controller to ask, unix:/path or https://address:port (default: the file's first that answers)")
	cmd.Flags().StringVar(&c.certs, "certs", "", "folder with your own ca.pem, cert.pem and key.pem (default: $"+certsVariable+", else what the file's tls names)")
}

type controlClient = fairleadv1connect.ControlClient

type namedControl struct {
	controlClient
	name   string
	files  config.TLS
	remote bool // it takes a certificate
}

// own is the user's certificate, if one is named.
func (c *control) own() (t config.TLS, named bool) {
	folder := cmp.Or(c.certs, os.Getenv(certsVariable))
	if folder == "" {
		return t, false
	}
	at := func(name string) string { return filepath.Join(folder, name) }
	return config.TLS{CA: at("ca.pem"), Cert: at("cert.pem"), Key: at("key.pem")}, true
}

// controllers are whoever may be asked. Where --api says who, the file is not needed:
// an operator's machine may have none.
func (c *control) controllers(cmd *cobra.Command) (all []namedControl, err error) {
	t, own := c.own()
	endpoints := []config.Controller{{Name: c.endpoint, API: c.endpoint}}
	if c.endpoint == "" || !own && !strings.HasPrefix(c.endpoint, "unix:") {
		cfg, err := c.read, error(nil)
		if cfg == nil {
			cfg, err = config.Look(c.file) // only who answers where, and by which certificates
		}
		if err != nil && c.endpoint != "" && c.noFile(cmd) {
			return nil, cli.Usagef("--api %s takes a certificate: name the folder of yours with --certs or $%s, or with -f a file whose tls names one", c.endpoint, certsVariable)
		}
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return nil, cli.ErrSilent
		}
		if !own {
			t = cfg.TLS
		}
		if c.endpoint == "" {
			endpoints, c.beside = cfg.Controllers, cfg.Implied()
			c.elsewhere = !c.beside && !slices.ContainsFunc(endpoints, mayBeHere)
		}
		if c.endpoint == "" && !own {
			endpoints = slices.Concat(here(cfg.Controllers), endpoints)
		}
		if len(endpoints) == 0 {
			return nil, fmt.Errorf("%s names no controllers, which make changes: add them (docs/store.md), or name one with --api", c.file)
		}
	}
	for _, e := range endpoints {
		client, err := api.DialControl(e.API, t)
		if err != nil && c.endpoint != "" {
			return nil, cli.Usage(fmt.Errorf("--api: %w", err))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, namedControl{client, e.Name, t, strings.HasPrefix(e.API, "https://")})
	}
	return all, nil
}

// noFile: there is no file where one is by default, and none was named.
func (c *control) noFile(cmd *cobra.Command) bool {
	_, err := os.Stat(c.file)
	return noFile(cmd, err)
}

// mayBeHere: e is on the network, or its socket is on this machine.
func mayBeHere(e config.Controller) bool {
	path, socket := strings.CutPrefix(e.API, "unix:")
	_, err := os.Stat(path)
	return !socket || err == nil
}

// here are the sockets of those of controllers that run on this machine, beside an api
// that is for others: root needs no certificate there.
func here(controllers []config.Controller) (sockets []config.Controller) {
	for _, c := range controllers {
		own := kept.OwnSocket("", c.Name)
		if info, err := os.Stat(own); err == nil && info.Mode().Type() == os.ModeSocket && strings.HasPrefix(c.API, "https://") {
			sockets = append(sockets, config.Controller{Name: c.Name, API: "unix:" + own})
		}
	}
	return sockets
}

// askControl has the first controller that can do it answer.
func askControl[R any](c *control, cmd *cobra.Command, bound time.Duration, do func(context.Context, controlClient) (*connect.Response[R], error)) (*R, error) {
	all, err := c.controllers(cmd)
	if err != nil {
		return nil, err
	}
	return askControls(cmd.Context(), c, all, bound, do)
}

// askControls is askControl of those that are known.
func askControls[R any](ctx context.Context, c *control, all []namedControl, bound time.Duration, do func(context.Context, controlClient) (*connect.Response[R], error)) (*R, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var away []string
	var mine error // what is wrong with the certificate of whoever asks
	for _, one := range all {
		resp, err := do(ctx, one.controlClient)
		var fault error
		if unheard(err) && one.remote {
			fault = api.OwnFault(one.files, time.Now())
			mine = cmp.Or(mine, fault)
		}
		// Nobody takes such a certificate. That it is refused comes behind what was sent, and
		// may be lost with it: all that is seen then is that the connection ended.
		if c.isAway(err) || fault != nil {
			away = append(away, one.name+": "+api.ErrorText(err))
			continue
		}
		if c.changes && unheard(err) {
			return nil, fmt.Errorf("%s was asked and did not answer (%s): the change may be made, in part or whole; `fairlead history` tells, and so does running it again", one.name, api.ErrorText(err))
		}
		if err != nil && !connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeUnimplemented { // 404
			return nil, fmt.Errorf("%s is no controller's api (%s), perhaps a store's or metrics' port: `fairlead get controllers` on a controller's machine names theirs", one.name, api.ErrorText(err))
		}
		if err != nil {
			return nil, err
		}
		return resp.Msg, nil
	}
	if mine != nil {
		return nil, fmt.Errorf("%w (%s)", mine, strings.Join(away, "; "))
	}
	return nil, c.silent(away)
}

// isAway: the controller is out of reach, or says that it starts or stops, or that no
// majority of the store answers: nothing was begun. One that was reached and did not answer
// may have made a change, or make it yet, and another one would make it again; looks do no
// harm.
func (c *control) isAway(err error) bool {
	if err != nil && connect.IsWireError(err) {
		return connect.CodeOf(err) == connect.CodeUnavailable
	}
	return unheard(err) && (!c.changes || unbegun(err))
}

// unheard: nobody said anything. A connection that was reset has no code of its own.
func unheard(err error) bool {
	var reach *net.OpError
	return err != nil && !connect.IsWireError(err) && (connect.CodeOf(err) == connect.CodeUnavailable || errors.As(err, &reach))
}

// unbegun: there was no connection, or it ended while both sides looked at certificates.
func unbegun(err error) bool {
	var reach *net.OpError
	var theirs *tls.CertificateVerificationError
	return errors.As(err, &theirs) || errors.Is(err, api.ErrOwn) ||
		errors.As(err, &reach) && (reach.Op == "dial" || reach.Op == "remote error") // an alert
}

// silent: no controller can do it.
func (c *control) silent(away []string) error {
	start := "`fairlead controller`"
	if c.beside {
		start = "`fairlead lb` (or `switch`), beside which it runs"
	}
	if c.elsewhere {
		start += ", run this on a controller's machine (a socket is for its own), give them an api with an address (docs/store.md)"
	}
	return fmt.Errorf("no controller answers (%s); start %s, or name one with --api; packets go on", strings.Join(away, "; "), start)
}

// text is the file's content, for a controller, once it is known to be right.
func (c *control) text(cmd *cobra.Command) (string, error) {
	if c.endpoint == "" {
		if _, err := loadFile(cmd, c.file); err != nil {
			return "", err
		}
	}
	data, err := os.ReadFile(c.file)
	if err != nil {
		return "", err
	}
	if len(data) == 0 {
		return "", errors.New(c.file + " is empty")
	}
	return string(data), nil
}
