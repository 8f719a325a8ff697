package config

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"go.yaml.in/yaml/v3"
)

// The desired state is the text of a fairlead.yaml that all machines share. What is a
// machine's own in it (where its secret and its certificates are) each takes from the
// file that it was started with, its bootstrap, which may hold nothing else.

// local are the keys that a machine takes from its bootstrap; of fabric only the path.
var local = []string{"secret", "secret_file", "tls"}

// Bootstrap says whether the file holds only how to come to the store, which has the
// rest.
func (c *Config) Bootstrap() bool {
	return len(c.Balancers)+len(c.Servers)+len(c.Switches)+len(c.VIPs) == 0 && len(c.Controllers)+len(c.Store.Etcd) > 0
}

// Desired is what text wants of the deployment, on the machine that c was loaded on:
// secret, tls, the fabric's path and, where text does not say, the store are c's, and
// relative paths those of c's folder. Its error is Problems, with name as the file. c
// stays as it is.
func (c *Config) Desired(name string, text []byte) (*Config, error) {
	out := &Config{looks: c.looks}
	d := document(name)
	if err := d.Decode(text, out); err != nil {
		return nil, err
	}
	out.origin = d
	out.secretive = out.Secret != ""
	out.Secret, out.SecretFile, out.secret, out.TLS = c.Secret, c.SecretFile, c.secret, c.TLS
	if len(out.Controllers)+len(out.Store.Etcd) == 0 && !c.Implied() {
		out.Controllers, out.Store = slices.Clone(c.Controllers), c.Store
	}
	dir := filepath.Dir(c.File())
	switch {
	case out.Fabric != "" && c.Fabric != "":
		out.Fabric = c.Fabric
	case out.Fabric != "" && !filepath.IsAbs(out.Fabric):
		out.Fabric = filepath.Join(dir, out.Fabric)
	}
	out.fill()
	out.placePasswords(dir)
	out.check()
	if out.Bootstrap() {
		out.problem("vips", "", "no VIP: this file holds only how to come to the store", "write balancers, servers and vips, or apply the file that has them")
	}
	if len(d.Problems) > 0 {
		d.Sort()
		return nil, d.Problems
	}
	return out, nil
}

// Shared is text, which Desired made c of, less the secret that may stand in it, for a
// store, from which it is shown.
func (c *Config) Shared(text []byte) ([]byte, error) {
	if !c.secretive {
		return text, nil
	}
	return Shared(text)
}

// Shared is text less the secret that may stand in it.
func Shared(text []byte) ([]byte, error) {
	c, err := said(text)
	if err != nil {
		return nil, err
	}
	if c.Secret == "" {
		return text, nil
	}
	e, err := Edit(text)
	if err != nil {
		return nil, err
	}
	root := e.doc.Content[0]
	if at := find(root, "secret"); at >= 0 && root.Style&yaml.FlowStyle == 0 && root.Content[at].Line == root.Content[at+1].Line {
		lines := bytes.SplitAfter(text, []byte("\n"))
		line := root.Content[at].Line - 1
		shorter := bytes.Join(slices.Delete(lines, line, line+1), nil)
		if without, err := said(shorter); err == nil && without.Secret == "" {
			if without.Secret = c.Secret; same(without, c) {
				return shorter, nil
			}
		}
	}
	*root = *written(root)
	at := find(root, "secret")
	root.Content = slices.Delete(root.Content, at, at+2)
	if len(root.Content) == 0 {
		return nil, errors.New("the configuration holds nothing but a secret")
	}
	return encode(&e.doc, e.compact())
}

// Diff is how two texts that Parse took differ, as lines that begin with a space, - or
// +, or with @@ where some are left out; nil: they say the same. Neither how something
// is written counts, nor what each machine has for itself. An empty text has nothing.
func Diff(before, after []byte) ([]string, error) {
	if bytes.Equal(before, after) {
		return nil, nil
	}
	was, err := normal(before)
	if err != nil {
		return nil, err
	}
	is, err := normal(after)
	if err != nil {
		return nil, err
	}
	var lines []string
	if !bytes.Equal(was, is) {
		lines = strings.Split(strings.TrimSuffix(string(diff.Diff("a", was, "b", is)), "\n"), "\n")[3:] // less the names of files
	}
	said := diff.Diff("a", remarks(before), "b", remarks(after))
	if len(said) > 0 {
		lines = append(lines, "@@ comments @@")
	}
	for line := range strings.SplitSeq(string(said), "\n") {
		if strings.HasPrefix(line, "+#") || strings.HasPrefix(line, "-#") {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// remarks are a text's comments, a line each.
func remarks(text []byte) []byte {
	all := comments(text)
	if len(all) == 0 {
		return nil
	}
	return []byte(strings.Join(all, "\n") + "\n")
}

// normal is text in one style, less what is a machine's own.
func normal(text []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	doc, err := tree(text)
	if err != nil {
		return nil, err
	}
	root := doc.Content[0]
	for _, key := range local {
		if at := find(root, key); at >= 0 {
			root.Content = slices.Delete(root.Content, at, at+2)
		}
	}
	plain(doc)
	return encode(doc, true)
}

// plain takes style and comments from what is written.
func plain(n *yaml.Node) {
	n.Style &= yaml.TaggedStyle
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	for _, c := range n.Content {
		plain(c)
	}
}
