package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
)

func newSecretCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "secret [FILE]",
		Short: "Make a deployment's secret, for secret_file",
		Long: `Prints 32 random bytes in hex, or writes them to FILE, readable by its owner
alone. All daemons of a deployment need the same one. A FILE that exists is
left alone: keys are changed by 'fairlead rotate'.`,
		Example: "  fairlead secret /etc/fairlead/secret",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret := make([]byte, 32)
			rand.Read(secret) // never fails (crypto/rand)
			line := hex.EncodeToString(secret) + "\n"
			if len(args) == 0 {
				_, err := fmt.Fprint(cmd.OutOrStdout(), line)
				return err
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists and is left alone; use it, or remove it first", args[0])
			}
			if err != nil {
				return fmt.Errorf("write secret: %w", err)
			}
			_, err = f.WriteString(line)
			return errors.Join(err, f.Sync(), f.Close())
		},
	}
}
