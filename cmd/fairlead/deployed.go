package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/api"
	"github.com/fairlead/fairlead/api/fairleadv1"
	"github.com/fairlead/fairlead/config"
	"github.com/fairlead/fairlead/daemon/kept"
)

// What commands that look go by: the file, or, where that is a bootstrap only, what the
// store wants:
//
//	file ─▶ has VIPs? ──yes──▶ it
//	          │no
//	          ▼
//	        a controller answers ──▶ its text ; else what daemons here kept ; else an error

// deployed is the file's, or the store's, and what people should know of that ("":
// nothing). errors.Is(err, os.ErrNotExist): there is no file.
func deployed(cmd *cobra.Command, c *control, timeout time.Duration) (cfg *config.Config, note string, err error) {
	boot, err := c.load()
	if _, missing := os.Stat(c.file); err != nil && missing != nil {
		t, _ := c.own()
		if !c.looks || c.endpoint == "" || cmd.Flags().Changed("file") {
			return nil, "", missing
		}
		boot, err = config.Looking(t), nil
	}
	if err != nil {
		return nil, "", err
	}
	if !boot.Bootstrap() && boot.File() != "" {
		return boot, "", nil
	}
	resp, silent := askControl(c, cmd, timeout, func(ctx context.Context, c controlClient) (*connect.Response[fairleadv1.GetConfigResponse], error) {
		return c.GetConfig(ctx, connect.NewRequest(&fairleadv1.GetConfigRequest{}))
	})
	if silent == nil {
		cfg, err = boot.Desired(config.OfVersion(resp.Version), []byte(resp.Text))
		return cfg, "", err
	}
	text, version := kept.Desired(kept.DefaultStateDir)
	if version == 0 && boot.File() == "" {
		return nil, "", silent
	}
	if version == 0 {
		return nil, "", fmt.Errorf("%s says only how to come to the store, and what is wanted is not known: %s", c.file, api.ErrorText(silent))
	}
	cfg, err = boot.Desired(config.OfVersion(version), text)
	return cfg, fmt.Sprintf("the deployment is as of version %d, which a daemon here kept: %s", version, api.ErrorText(silent)), err
}

// load reads the file. Who only looks needs no secret, which is on the daemons' machines;
// the whole file's problems are told where it cannot be read so either.
func (c *control) load() (*config.Config, error) {
	if c.read != nil {
		return c.read, nil
	}
	cfg, err := config.Load(c.file)
	if err == nil {
		c.read = cfg
		return cfg, nil
	}
	if c.looks {
		if looked, looks := config.Look(c.file); looks == nil {
			return looked, nil
		}
	}
	return cfg, err
}

// daemonSockets are those of daemons in the folder of all; a controller has two there, and
// neither speaks that API.
func daemonSockets() (names, paths []string) {
	sockets, _ := filepath.Glob(filepath.Join(runFolder, "*.sock")) // the pattern is right
	for _, s := range sockets {
		name := strings.TrimSuffix(filepath.Base(s), ".sock")
		if strings.HasSuffix(name, "-api") || strings.HasSuffix(name, "-store") {
			continue
		}
		names, paths = append(names, name), append(paths, s)
	}
	return names, paths
}

// noFile says that there is no file, and none was asked for.
func noFile(cmd *cobra.Command, err error) bool {
	return errors.Is(err, os.ErrNotExist) && !cmd.Flags().Changed("file")
}
