package config

import (
	"crypto/tls"
	"crypto/x509"

	"github.com/fairlead/fairlead/config/yamlfile"
)

// CheckFiles reads the files that tls, fabric and bgp name and returns Problems if one
// is missing, unreadable, or not what it should be. It is apart from Load, since
// only daemons and their clients need these files: `fairlead certs` reads a
// Config in order to make those of tls. Call it for a Config from Load.
func (c *Config) CheckFiles() error {
	before := len(c.origin.Problems)
	fabric := c.checkFabric()
	c.checkTLSFiles()
	c.checkPasswords()
	found := append(Problems(nil), c.origin.Problems[before:]...)
	c.origin.Problems = c.origin.Problems[:before]
	if found = append(found, fabric...); len(found) > 0 {
		return found
	}
	return nil
}

func (c *Config) checkTLSFiles() {
	t := c.TLS
	if t == (TLS{}) {
		return
	}
	const remedy = "make them with `fairlead certs FOLDER` and put this machine's there, or run this where the daemons run"
	read := func(key, path string) []byte {
		data, info, err := yamlfile.ReadBounded(path, maxPEM)
		if err != nil {
			wrong, remedy := yamlfile.Unread(err, remedy)
			c.problem("tls."+key, path, wrong, remedy)
			return nil
		}
		if wrong, remedy := yamlfile.Exposed(path, info); key == "key" && wrong != "" {
			c.problem("tls.key", path, wrong, remedy)
		}
		return data
	}
	ca, cert, key := read("ca", t.CA), read("cert", t.Cert), read("key", t.Key)
	if ca != nil && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		c.problem("tls.ca", t.CA, "holds no certificate in PEM", remedy)
	}
	if cert != nil && key != nil {
		if _, err := tls.X509KeyPair(cert, key); err != nil {
			c.problem("tls.cert", t.Cert, "is no certificate of the key "+t.Key+": "+err.Error(), remedy)
		}
	}
}
