package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api/access"
	"github.com/fairlead/fairlead/certs"
	"github.com/fairlead/fairlead/cmd/cli"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/vip"
)

// certsFlags are what `fairlead certs` is told.
type certsFlags struct {
	file   string
	user   string // make that user's certificate
	role   string
	only   string // make that machine's alone
	out    string // and write it there, with its key
	renew  bool
	within time.Duration
}

func newCertsCommand() *cobra.Command {
	var f certsFlags
	cmd := &cobra.Command{
		Use:   "certs FOLDER",
		Short: "Make certificates for daemons, and for people with a role",
		Long: `Makes an authority in FOLDER (ca.pem, and ca.key, which stays where it is) and
for each daemon and controller of the file a folder of its name with ca.pem, cert.pem and
key.pem, good for ten years. Copy each to its machine and name the copies under
tls in the file. What exists is kept, so that daemons that come later get
theirs from the same authority. Any other authority's certificates do as well;
none are needed where every api and store is a unix socket.

With --user and --role: one for somebody who calls the controllers' API, good for a
year: view may look, operate may change pools, administer may everything. It is for
no machine, and the store does not take it.

With --out, a machine's (--for) or a user's is written there as a tar archive, and no
copy of its key is left in FOLDER: make it where the authority is, and send it to its
machine at once.

With --renew: certificates in FOLDER that end within --within are signed anew, for the
keys that they have, so that cert.pem alone is to be copied. Daemons take it without
a restart.`,
		Example: `  fairlead certs -f fairlead.yaml ./certs
  scp certs/s1/* s1:/etc/fairlead/
  fairlead certs ./certs --for s2 --out - | ssh s2 tar -xf - -C /etc/fairlead
  fairlead certs ./certs --user ann --role operate
  fairlead certs ./certs --renew --within 60d`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd); err != nil {
				return err
			}
			if f.renew {
				return f.renewIn(cmd, args[0])
			}
			subjects, err := f.subjects(cmd)
			if err != nil {
				return err
			}
			ca, err := certs.Open(args[0])
			if err != nil {
				return err
			}
			if f.out != "" {
				return bundle(cmd, ca, subjects[0], f.out)
			}
			for _, s := range subjects {
				made, err := ca.Issue(s)
				if err != nil {
					return err
				}
				switch at := filepath.Join(args[0], s.Name); {
				case made:
					fmt.Fprintln(cmd.OutOrStdout(), at)
				case f.user != "":
					return fmt.Errorf("%s is there already; remove it to give %s another one", at, s.Name)
				}
			}
			return nil
		},
	}
	fileFlag(cmd, &f.file)
	flags := cmd.Flags()
	flags.StringVar(&f.user, "user", "", "make a certificate for that user, of the API's role --role")
	flags.StringVar(&f.role, "role", "", "view, operate or administer")
	flags.StringVar(&f.only, "for", "", "make that machine's alone")
	flags.StringVar(&f.out, "out", "", "write the certificate of --for or --user as a tar archive there (- for stdout), and keep no key of it")
	flags.BoolVar(&f.renew, "renew", false, "sign certificates in FOLDER anew that end soon")
	flags.Var(&days{&f.within}, "within", "with --renew: how soon, such as 30d or 12h")
	f.within = 30 * 24 * time.Hour
	return cmd
}

// days is a time as people count that of certificates.
type days struct{ d *time.Duration }

func (d *days) String() string {
	if d.d == nil || *d.d == 0 {
		return "30d"
	}
	return d.d.String()
}

// Set implements pflag.Value.
func (d *days) Set(text string) error {
	var n int
	if _, err := fmt.Sscanf(text, "%dd", &n); err == nil && fmt.Sprintf("%dd", n) == text && n > 0 && n <= 36500 {
		*d.d = time.Duration(n) * 24 * time.Hour
		return nil
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed <= 0 {
		return errors.New("must be a time such as 30d or 12h")
	}
	*d.d = parsed
	return nil
}

// Type implements pflag.Value.
func (d *days) Type() string { return "time" }

func (f *certsFlags) check(cmd *cobra.Command) error {
	switch {
	case f.renew && (f.user != "" || f.only != "" || f.out != ""):
		return cli.Usagef("--renew: leave out --user, --for and --out: it is for all that end soon")
	case !f.renew && cmd.Flags().Changed("within"):
		return cli.Usagef("--within: goes with --renew")
	case f.user != "" && f.only != "":
		return cli.Usagef("--user, --for: name one of them")
	case (f.user == "") != (f.role == ""):
		return cli.Usagef("--user and --role go together: --user ann --role operate")
	case f.out != "" && f.user == "" && f.only == "":
		return cli.Usagef("--out: say whose, with --for MACHINE or --user NAME --role ROLE")
	}
	// A machine's own callers are root@host or "uid 1000" to the audit log.
	if f.user != "" && !vip.ServerName(f.user) {
		return cli.Usagef("--user %q: not a name; %s", f.user, vip.NameRule)
	}
	if f.role != "" {
		if _, err := access.ParseRole(f.role); err != nil {
			return cli.Usagef("--role %w", err)
		}
	}
	return nil
}

// subjects are whom certificates are to be made for.
func (f *certsFlags) subjects(cmd *cobra.Command) ([]certs.Subject, error) {
	if f.user != "" {
		role, err := access.ParseRole(f.role)
		if err != nil {
			return nil, err
		}
		// Where there is a file, nobody gets a machine's name by a slip.
		if cfg, err := config.Look(f.file); err == nil {
			for _, s := range machinesOf(cfg) {
				if s.Name == f.user {
					return nil, fmt.Errorf("--user %s: a machine of %s is called so; give the user another name", f.user, f.file)
				}
			}
		}
		return []certs.Subject{{Name: f.user, Role: role}}, nil
	}
	cfg, err := config.Look(f.file) // the authority is where no machine's secret need be
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
		return nil, cli.ErrSilent
	}
	all := machinesOf(cfg)
	if f.only == "" {
		return all, nil
	}
	for _, s := range all {
		if s.Name == f.only {
			return []certs.Subject{s}, nil
		}
	}
	return nil, fmt.Errorf("--for %s: %s names no such daemon or controller", f.only, f.file)
}

// machinesOf are all that need a certificate.
func machinesOf(cfg *config.Config) (all []certs.Subject) {
	for _, s := range cfg.Daemons() {
		all = append(all, certs.Subject{Name: s.Name, Endpoints: []string{s.API}})
	}
	for _, c := range cfg.Controllers {
		if cfg.Implied() {
			break // it has its balancer's
		}
		all = append(all, certs.Subject{Name: c.Name, Endpoints: []string{c.API, c.Store, c.Peer}})
	}
	return all
}

// bundle writes one certificate to path.
func bundle(cmd *cobra.Command, ca *certs.Authority, s certs.Subject, path string) (err error) {
	var out io.Writer = cmd.OutOrStdout()
	if path == "-" {
		if cli.Terminal(out) {
			return cli.Usagef("--out -: a tar archive with a key does not belong on a terminal; pipe it into `ssh MACHINE tar -xf - -C /etc/fairlead`")
		}
		return ca.Bundle(s, out)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return ca.Bundle(s, file)
}

func (f *certsFlags) renewIn(cmd *cobra.Command, folder string) error {
	if _, err := os.Stat(filepath.Join(folder, "ca.pem")); err != nil {
		return fmt.Errorf("--renew: %w; name the folder of an authority", err)
	}
	ca, err := certs.Open(folder)
	if err != nil {
		return err
	}
	renewed, err := ca.Renew(f.within)
	for _, r := range renewed {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: good until %s; copy it to %s\n", r.File, r.Ends.UTC().Format(time.DateOnly), r.Name)
	}
	if err == nil && len(renewed) == 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "nothing to do: none ends within %s\n", &days{&f.within})
	}
	if left := time.Until(ca.Ends()); left < f.within {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: the authority itself ends on %s, and with it all that it signed: make another one in another folder\n", ca.Ends().UTC().Format(time.DateOnly))
	}
	return err
}
